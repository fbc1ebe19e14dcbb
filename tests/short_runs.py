"""Words that make a run on the embedded data set a matter of a second."""

SHORT = (
    "data.classes=3",
    "data.size=32",
    "data.train=16",
    "data.test=6",
    "train.crop=32",
    "train.batch_size=8",
    "train.epochs=1",
    "train.epochs_next=1",
    "train.scale=[1,1]",
    "eval.samples=0",
)
