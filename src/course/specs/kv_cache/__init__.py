"""Exercises of chapter 04: generation without a KV cache and with one."""

from course.specs.kv_cache.bytes_per_token import BYTES_PER_TOKEN
from course.specs.kv_cache.cached_forward import CACHED_FORWARD
from course.specs.kv_cache.cost import COST
from course.specs.kv_cache.generate_cached import GENERATE_CACHED
from course.specs.kv_cache.generate_naive import GENERATE_NAIVE
from course.specs.kv_cache.is_cache_safe import IS_CACHE_SAFE
from course.specs.kv_cache.kv_cache import KV_CACHE

EXERCISES = [GENERATE_NAIVE, KV_CACHE, CACHED_FORWARD, GENERATE_CACHED, IS_CACHE_SAFE, BYTES_PER_TOKEN, COST]
