"""The template of a chapter: one page that follows it, and each way to leave it."""

import pytest

from course import paths
from course.book import template
from course.book.chapters import core_minutes

PAGE = '''---
jupytext: {}
---

# A chapter

```{admonition} After this chapter
:class: goals
You can do it. **Time:** 30 minutes to read, 65 minutes for the core
exercises. **You need:** nothing.
```

````{predict} How many?
:key: many
:ask: tokens: how many

Guess.
````

```{code-cell} ipython3
:tags: [remove-input]
measured("many", tokens=3)
```

More is in {chapter}`05`.

## Bugs seen in real engines

````{admonition} One
:class: bug
It broke ([issue 1](https://github.com/a/b/issues/1)).
````

````{admonition} Two
:class: bug
It broke ([issue 2](https://github.com/a/b/issues/2)).
````

## In five lines

- one
- two
- three
- four
- five

## Questions

In your own words:

1. Why?
2. Why not?

## Now write it

{download}`a.ipynb <../exercises/a.ipynb>`

```{exercises} tokenization
```

## Runs on the real model

It does.

## Read on

Elsewhere.

## The document, claim by claim

```{claims-ledger}
:chapter: 01_tokenization
```
'''


def test_a_page_that_follows_the_template_has_no_faults():
    assert template.faults(PAGE, minutes=65) == []
    assert template.faults(PAGE, minutes=None) == []


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (":class: goals", ":class: tip", "opens with its title and the box"),
        ("# A chapter\n", "# A chapter\n\nSome words first.\n", "opens with its title and the box"),
        ("**You need:** nothing.", "", "You need"),
        ("**Time:** 30 minutes to read", "**Time:** half an hour", "gives the time as"),
        ("65 minutes", "70 minutes", "their specs say 65"),
        ("````{predict} How many?\n:key: many\n:ask: tokens: how many\n\nGuess.\n````", "", "asks for a prediction"),
        ('measured("many", tokens=3)', "print(3)", "never answered"),
        ("{chapter}`05`", "chapter 05", "name another chapter with"),
        ("Guess.", "Guess. On other machines it differs.", "must not depend on the machine"),
        ("## Questions", "## Some questions", "a chapter ends with the sections"),
        ("## Read on\n\nElsewhere.\n\n", "", "a chapter ends with the sections"),
        ("## Bugs seen in real engines", "## Seen in real engines", "a chapter ends with the sections"),
        ("## The document, claim by claim", "## What remains of the document here", "a chapter ends with the sections"),
        ("([issue 2](https://github.com/a/b/issues/2))", "", "needs the link to its public thread"),
        ("````{admonition} Two\n:class: bug", "````{admonition} Two\n:class: note", "two or three bugs"),
        ("- five\n", "", "has five points, here are 4"),
        ("2. Why not?", "", "has two, numbered, here are 1"),
        ("```{exercises} tokenization\n```", "", "lists the exercises"),
        ("{download}`a.ipynb <../exercises/a.ipynb>`", "", "lists the exercises"),
        ('measured("many"', "x = 1\n" * 30 + 'measured("many"', "a hidden cell has 31 lines"),
        (":tags: [remove-input]\n", "a = '" + "x" * 90 + "'\n", "at most 84 fit"),
    ],
)
def test_each_way_to_leave_the_template_is_named(old, new, words):
    assert PAGE.count(old) >= 1, old
    found = template.faults(PAGE.replace(old, new), minutes=65)
    assert any(words in fault for fault in found), found


def test_two_predictions_of_one_key_are_a_fault():
    again = "````{predict} Again?\n:key: many\n:ask: tokens: how many\n\nGuess.\n````\n\n## Bugs seen"
    assert "two predictions have the key 'many'" in template.faults(PAGE.replace("## Bugs seen", again), minutes=65)


CHAPTER_PAGES = [page for page in sorted((paths.root() / "book").glob("*.md")) if template.stem_of(page.stem)]


@pytest.mark.parametrize("page", CHAPTER_PAGES, ids=lambda page: page.stem)
def test_every_chapter_follows_the_template(page):
    minutes = core_minutes(template.stem_of(page.stem))
    assert template.faults(page.read_text(encoding="utf-8"), minutes=minutes) == []


def test_pages_that_are_no_chapters_are_left_alone():
    assert template.stem_of("04_kv_cache") == "kv_cache"
    assert template.stem_of("triton_primer") == "triton_primer"
    assert template.stem_of("glossary") is None
