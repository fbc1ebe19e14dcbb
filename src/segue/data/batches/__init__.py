"""The images of one step as batches. What a batch holds follows from (seed, step, iteration) alone.

So a run may stop at any iteration and go on with the very same batches, with any number of workers and of
processes, which share every batch among them.
"""

from segue.data.batches.batch import WHOLE, Batch, RankSlice
from segue.data.batches.loader import Batches, FrozenMaps, lost_worker_is_told
from segue.data.batches.order import FixedOrder, FixedViews, MixedOrder, ShuffledOrder
from segue.data.batches.step_data import StepData, relabel

__all__ = [
    "WHOLE",
    "Batch",
    "Batches",
    "FixedOrder",
    "FixedViews",
    "FrozenMaps",
    "MixedOrder",
    "RankSlice",
    "ShuffledOrder",
    "StepData",
    "lost_worker_is_told",
    "relabel",
]
