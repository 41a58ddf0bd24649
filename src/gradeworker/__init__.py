"""All that a sandbox sees besides kernelcheck: runs one answer on given inputs and returns typed bytes.

A worker never learns what is expected. It is sent the answer's source, the sources of the modules the
answer may import, and inputs; it sends back values, the inputs as the answer left them, and errors.
The verdict is made elsewhere, by ``course.grade``.
"""
