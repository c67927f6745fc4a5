"""Threads for what blocks: files, databases, tokens.  The app may have filled those of its event loop."""

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="trimtab")


async def in_own_thread(function: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
    """The result of a function that blocks."""
    call = functools.partial(function, *arguments, **options)
    return await asyncio.get_running_loop().run_in_executor(_threads, call)
