"""Crops and flips: each is checked against all crops of the padded image."""

import pytest
import torch
from torch.nn.functional import pad as pad_image

from emais import EmaisError
from emais.draws.uniforms import Uniforms
from emais.experiments.data import Data
from emais.experiments.train.augment import WHOLE_IMAGE, Pictures, Recipe, channel_statistics, recipe


def made_up(n=20, channels=3, size=6):
    return torch.randint(256, (n, channels, size, size), dtype=torch.uint8)


def bytes_of(pictures, x):
    """What a result was before it was normalised."""
    mean, deviation = (v.float().view(1, -1, 1, 1) for v in pictures.statistics)
    return (x * deviation + mean).round().to(torch.uint8)


def all_crops(image, crop, pad, flip):
    """{(y, x, flipped): crop} by brute force."""
    padded = pad_image(image, (pad, pad, pad, pad))
    found = {}
    for y in range(padded.shape[1] - crop + 1):
        for x in range(padded.shape[2] - crop + 1):
            part = padded[:, y : y + crop, x : x + crop]
            found[y, x, False] = part
            if flip:
                found[y, x, True] = part.flip(2)
    return found


def which(pictures, images, how, index, u):
    """(y, x, flipped) of every result: each must be one of the crops of its own image."""
    results = bytes_of(pictures, pictures(index, u))
    places = []
    for i, result in zip(index.tolist(), results, strict=True):
        crops = all_crops(images[i], how.crop, how.pad, how.flip)
        places.append(next(place for place, part in crops.items() if torch.equal(part, result)))
    return places


@pytest.mark.parametrize("how", [Recipe(6, 4, True), Recipe(4, 0, True), Recipe(5, 1, False)])
def test_every_result_is_a_crop_of_the_padded_image(how):
    images = made_up(channels=1 if how.pad == 0 else 3)
    pictures = Pictures(images, how)
    index = torch.arange(20).repeat(2)
    places = which(pictures, images, how, index, Uniforms(0, 1, 40)(torch.tensor(1))[0])
    assert len(set(places)) > 10
    assert any(flipped for *_, flipped in places) == how.flip


def test_all_offsets_come_and_half_is_flipped():
    images, how = made_up(n=1), Recipe(6, 2, True)
    pictures = Pictures(images, how)
    u = Uniforms(3, 1, 2000)(torch.tensor(7))[0]
    results = bytes_of(pictures, pictures(torch.zeros(2000, dtype=torch.int64), u))
    crops = torch.stack(list(all_crops(images[0], 6, 2, True).values()))
    counts = torch.stack([(results == crop).flatten(1).all(1).sum() for crop in crops])
    assert counts.sum() == 2000
    assert len(counts) == pictures.positions == 50
    assert counts.min() > 10  # 40 expected, standard deviation 6.3
    flipped = int(counts[1::2].sum())
    assert abs(flipped - 1000) < 90  # four standard deviations


def test_the_same_seed_and_step_give_the_same_crops():
    pictures = Pictures(made_up(), Recipe(6, 4, True))
    index = torch.arange(20)

    def crops(seed, step):
        return pictures(index, Uniforms(seed, 1, 20)(torch.tensor(step))[0])

    assert torch.equal(crops(1, 5), crops(1, 5))
    assert not torch.equal(crops(1, 5), crops(1, 6))
    assert not torch.equal(crops(1, 5), crops(2, 5))


def test_without_numbers_the_middle():
    images = made_up(size=8)
    middle = Pictures(images, Recipe(8, 4, True))
    assert torch.equal(bytes_of(middle, middle(torch.tensor([3, 5]))), images[[3, 5]])
    cut = Pictures(images, Recipe(6, 0, True))
    assert torch.equal(bytes_of(cut, cut(torch.arange(20))), images[:, :, 1:7, 1:7])
    plain = Pictures(images, WHOLE_IMAGE)
    assert torch.equal(bytes_of(plain, plain(torch.arange(20), torch.rand(20))), images)


def test_any_number_of_images_channels_last():
    pictures = Pictures(made_up(), Recipe(6, 4, True))
    x = pictures(torch.randint(20, (1024,)), torch.rand(1024, dtype=torch.float64))
    assert x.shape == (1024, 3, 6, 6)
    assert x.dtype == torch.float32
    assert x.is_contiguous(memory_format=torch.channels_last)


def test_statistics_are_the_training_sets():
    images = made_up(n=50)
    mean, deviation = channel_statistics(images)
    floats = images.double().transpose(0, 1).flatten(1)
    torch.testing.assert_close(mean, floats.mean(1))
    torch.testing.assert_close(deviation, floats.std(1, correction=0))
    x = Pictures(images)(torch.arange(50))
    torch.testing.assert_close(x.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(x.var((0, 2, 3), correction=0), torch.ones(3), atol=1e-4, rtol=0)
    black = torch.zeros(2, 1, 3, 3, dtype=torch.uint8)
    assert Pictures(black)(torch.arange(2)).eq(0).all()


def test_the_papers_recipes():
    def of(name, size):
        x, y = made_up(2, size=size), torch.zeros(2, dtype=torch.int64)
        return recipe(Data(name, name, ("a",), x, y, x, y))

    assert of("cifar10", 32) == of("cinic10", 32) == (32, 4, True)
    assert of("chestxray14", 80) == (72, 0, True)
    assert of("fmnist", 28) == (None, 0, False)


def test_a_crop_that_does_not_fit():
    with pytest.raises(EmaisError, match="crop of 9 x 9 does not fit into 6 x 6 padded by 1"):
        Pictures(made_up(), Recipe(9, 1))
