"""The little that is asked of asyncio's event loops."""

from __future__ import annotations

import asyncio
import threading


def in_running_loop() -> bool:
    """True if the calling thread runs an event loop already (a notebook)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def finish(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel the loop's tasks, let them end, close it; from a fresh thread inside a running loop."""

    def work() -> None:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks, timeout=5.0))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    if in_running_loop():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    else:
        work()
