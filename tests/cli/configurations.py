"""Random but reproducible configurations: lists of overrides for `brim plan` and `brim train`.

Used by the test that plans are exact (test_exact.py) and by the measurement of planning time
(scripts/bench/plan_time.py)."""

import pathlib
import random

SEED, COUNT = 6, 30


def mlp(draw):
    widths = [draw.choice((16, 64, 300, 1024, 2048, 4096)) for _ in range(draw.randint(1, 4))]
    return [f"model.hidden=[{','.join(map(str, widths))}]", f"model.dropout={draw.choice((0, 0.2))}"], \
        draw.choice(("[1,28,28]", "[3,32,32]", "[100]", "[1024]"))


def cnn(draw):
    side = draw.randint(12, 32)
    return [f"model.width={draw.choice((4, 16, 32))}"], f"[{draw.choice((1, 3))},{side},{side}]"


def fedavg_cnn(draw):
    side = draw.randint(12, 32)
    return [f"model.width={draw.choice((8, 20, 32))}"], f"[{draw.choice((1, 3))},{side},{side}]"


def lightcnn(draw):
    side = draw.randint(8, 40)
    return [f"model.width={draw.choice((4, 16, 24))}", f"model.norm={draw.choice(('batch', 'group', 'none'))}"], \
        f"[{draw.choice((1, 3))},{side},{side}]"


def emotion_cnn(draw):
    return [f"model.dropout={draw.choice((0, 0.25))}"], draw.choice(("[1,28,28]", "[1,48,48]"))


def temperature_lstm(draw):
    return [f"model.hidden={draw.choice((10, 50, 128))}", f"model.layers={draw.randint(1, 2)}"], \
        f"[1,{draw.randint(4, 48)},{draw.randint(1, 8)}]"


def mental_state(draw):
    return [f"model.width={draw.choice((16, 64))}", f"model.hidden={draw.choice((16, 64))}",
            f"model.heads={draw.choice((2, 4))}"], f"[1,{draw.randint(1, 16)},{4 * draw.randint(4, 32)}]"


MODELS = (mlp, cnn, fedavg_cnn, lightcnn, emotion_cnn, temperature_lstm, mental_state)


def data_of(draw, shape, batch, accumulation):
    """Returns data for at most two steps an epoch, with a remainder of any size."""
    effective = batch * accumulation
    words = ["dataset=synthetic", f"dataset.shape={shape}", f"dataset.classes={draw.choice((2, 7, 10, 40))}",
             f"dataset.train_count={draw.randint(effective, 2 * effective)}",
             f"dataset.test_count={draw.randint(1, 100)}", f"augment.flip={str(shape.count(',') > 0).lower()}"]
    return words + (["dataset.validation_fraction=0.1"] if effective >= 16 and draw.random() < 0.3 else [])


def configuration(draw, model, fashion=None):
    """Returns one configuration. `fashion`: the folder of Fashion-MNIST, or None for synthetic data."""
    words, shape = model(draw)
    batch, accumulation = 32 * draw.randint(1, 3) if model is lightcnn else draw.randint(1, 96), draw.randint(1, 4)
    if fashion:
        data = ["dataset=fashion_mnist", f"dataset.path={fashion}",
                f"training.num_train_samples={2 * batch * accumulation}"]
    else:
        data = data_of(draw, shape, batch, accumulation)
    clip = draw.choice((0, 0, 1))
    in_backward = accumulation == 1 and clip == 0 and draw.random() < 0.7
    return [f"model={model.__name__}", *words, *data, f"training.batch_size={batch}",
            f"training.gradient_accumulation_steps={accumulation}",
            f"training.eval_batch_size={draw.choice((0, 0, 7, 256))}",
            f"training.ema_decay={draw.choice((0, 0, 0.99))}", f"training.clip_norm={clip}",
            f"optimizer.update={'fused_backward' if in_backward else 'step'}",
            f"training.num_workers={draw.choice((0, 1, 3))}",
            f"optimizer={draw.choice(('adamw', 'adam', 'yogi', 'adagrad', 'sgd', 'lion', 'adafactor', 'adamw8bit'))}",
            f"loss={draw.choice(('cross_entropy', 'cross_entropy', 'mse', 'mae', 'huber', 'bce'))}",
            f"backend.threads={draw.choice((1, 2, 5))}", f"memory.offload={draw.choice(('none', 'optimizer'))}"]


def configurations(fashion):
    """Returns COUNT lists of overrides, cycling through the models; three use Fashion-MNIST if its folder exists."""
    draw = random.Random(SEED)
    there = pathlib.Path(fashion).is_dir()
    return [configuration(draw, MODELS[i % len(MODELS)], fashion if there and i in (0, 8, 17) else None)
            for i in range(COUNT)]
