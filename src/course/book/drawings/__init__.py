"""The pictures of the chapters, one module a stem: from what a page recorded to a `Display`.

Scenes, drawing code and the asserts that guard a figure live here, where they are linted and tested. Captions, and
the numbers that the prose quotes, stay on the page.
"""
