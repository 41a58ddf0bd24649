"""Exercises of chapter 01: byte-pair encoding, trained, used, undone, streamed, and kept apart from its own markers."""

from course.specs.tokenization.decode import DECODE
from course.specs.tokenization.encode import ENCODE
from course.specs.tokenization.encode_special import ENCODE_SPECIAL
from course.specs.tokenization.merge_pair import MERGE_PAIR
from course.specs.tokenization.stream import STREAM
from course.specs.tokenization.train import TRAIN

EXERCISES = [MERGE_PAIR, TRAIN, ENCODE, DECODE, STREAM, ENCODE_SPECIAL]
