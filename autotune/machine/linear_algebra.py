"""Number of threads on which this process multiplies matrices."""

from __future__ import annotations

from threadpoolctl import threadpool_limits


def use_one_thread() -> None:
    """Let numpy's linear algebra run on the thread that calls it, from now on.

    The matrices of a proposal are small. Several threads would wait for each other in busy loops: that takes CPU time
    from the trial that is measured meanwhile, and more of it than the products themselves.
    """
    threadpool_limits(limits=1, user_api="blas")
