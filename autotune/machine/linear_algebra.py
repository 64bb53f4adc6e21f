"""Limits the threads on which this process multiplies matrices."""

from __future__ import annotations

from threadpoolctl import threadpool_limits


def use_one_thread() -> None:
    """Makes numpy's linear algebra run on the calling thread only, from now on.

    The matrices of a proposal are small. More threads would wait for each other in busy loops, whose CPU time disturbs
    the trial that is being measured and exceeds that of the products.
    """
    threadpool_limits(limits=1, user_api="blas")
