"""Segue's scenario and losses in a training loop of your own: any network, any optimiser.

python examples/loop.py

`K` is the number of channels, `O` that of the old network; both count background.
"""

import copy

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import segue
from segue.losses import incremental_losses, upsample

CROP, EPOCHS = 64, 8


class Network(nn.Module):
    """A network of yours: logits at whatever stride it has, and room for new classes."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        sizes = [(3, width, 2), (width, 2 * width, 2), (2 * width, 2 * width, 1), (2 * width, 2 * width, 1)]
        layers = [
            nn.Sequential(nn.Conv2d(a, b, 3, s, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU())
            for a, b, s in sizes
        ]
        self.body, self.head = nn.Sequential(*layers), nn.Conv2d(2 * width, 1, 1)

    def grow(self, channels: int) -> None:
        """New classes begin as background, which is what the old network calls them."""
        weight, bias = self.head.weight.data, self.head.bias.data
        more = channels - len(bias)
        self.head = nn.Conv2d(weight.shape[1], channels, 1)
        self.head.weight.data = torch.cat([weight, weight[:1].repeat(more, 1, 1, 1)])
        self.head.bias.data = torch.cat([bias, bias[:1].repeat(more)])

    def forward(self, images_B3HW: Tensor) -> Tensor:
        return self.head(self.body(images_B3HW / 127.5 - 1))


def train(epochs: int = EPOCHS, crop: int = CROP, **settings: int) -> list[dict[str, float]]:
    """IoU of each class after each step. For VOC: open_dataset("voc", root="VOCdevkit") and "15-5"."""
    dataset, tests = (segue.open_dataset("scenes", split, **settings) for split in ("train", "test"))
    scenario, network, scores = segue.make_scenario(dataset.classes, "2-1"), Network(), []
    for step in scenario:
        old = copy.deepcopy(network).eval().requires_grad_(False)
        network.grow(step.num_channels)
        network.train(step.first)  # later steps leave the norms' statistics alone
        optimiser = torch.optim.SGD(network.parameters(), lr=0.1 if step.first else 0.02, momentum=0.9)
        data = segue.step_data(dataset, scenario, step, crop)  # an ordinary torch data set
        for _ in range(epochs):
            for images, labels, _ in DataLoader(data, batch_size=16, shuffle=True, drop_last=True):
                ce, kd = incremental_losses(network(images), old(images), labels, step.num_old)
                optimiser.zero_grad()
                (ce + 10 * kd).backward()  # MiB; in step 0 the old network knows background alone: kd is 0
                optimiser.step()
        names, data = scenario.channel_names(step), segue.step_data(tests, scenario, step, crop, "test")
        scores.append(dict(zip(names, test(network, data, len(names)), strict=True)))
    return scores


@torch.inference_mode()
def test(network: Network, data: torch.utils.data.Dataset, channels: int) -> list[float]:
    """IoU of each channel."""
    network.eval()
    confusion = torch.zeros(channels, channels)
    for images, labels, _ in DataLoader(data, batch_size=16):
        found = upsample(network(images), labels.shape[-2:]).argmax(1)
        pairs = (labels.long() * channels + found)[labels != 255]
        confusion += torch.bincount(pairs, minlength=channels**2).view(channels, channels)
    right = confusion.diagonal()
    return (right / (confusion.sum(0) + confusion.sum(1) - right)).tolist()


if __name__ == "__main__":
    torch.manual_seed(0)
    for number, scores in enumerate(train(classes=4, train=400, test=100)):
        print(f"step {number}: " + ", ".join(f"{name} {100 * score:.0f}" for name, score in scores.items()))
