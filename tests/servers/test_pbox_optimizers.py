"""The optimizers in C, against their equations in numpy and against PyTorch."""

import ctypes

import numpy as np
import pytest
import torch
from c_arrays import pointers
from hypothesis import given
from hypothesis import strategies as st

from innet.errors import UsageError
from innet.servers import pbox
from innet.servers.pbox import native

SIZE, STEPS = 5003, 12  # not a multiple of a block or of a vector
F, D = np.float32, np.float64


def fma(a, b, c):
    """Return a * b + c with one rounding: the product of two float32 is exact in float64."""
    return (D(a) * D(b) + D(c)).astype(F)


# Each function returns the new parameters and changes `s` and `t` in place. The equations are those
# of Arnold (2016), "Variants of SGD", with epsilon where PyTorch has it.


def sgd(o, w, g, s, t, step):
    return fma(g, F(-o.lr), w)


def momentum(o, w, g, s, t, step):
    s[:] = s * F(o.momentum) + g
    return fma(s, F(-o.lr), w)


def nesterov(o, w, g, s, t, step):
    s[:] = s * F(o.momentum) + g
    return fma(fma(s, F(o.momentum), g), F(-o.lr), w)


def adagrad(o, w, g, s, t, step):
    rate = F(o.lr / (1 + (step - 1) * o.lr_decay))
    s[:] = fma(g, g, s)
    return w + -rate * g / (np.sqrt(s) + F(o.eps))


def rmsprop(o, w, g, s, t, step):
    s[:] = fma(F(1 - o.alpha) * g, g, s * F(o.alpha))
    return w + F(-o.lr) * g / (np.sqrt(s) + F(o.eps))


def adadelta(o, w, g, s, t, step):
    s[:] = fma(F(1 - o.rho) * g, g, s * F(o.rho))
    delta = np.sqrt(t + F(o.eps)) / np.sqrt(s + F(o.eps)) * g
    t[:] = fma(F(1 - o.rho) * delta, delta, t * F(o.rho))
    return fma(delta, F(-o.lr), w)


def adam(o, w, g, s, t, step):
    if 1 - o.beta1 < 0.5:
        s[:] = fma(F(1 - o.beta1), g - s, s)
    else:  # as PyTorch's lerp
        s[:] = fma(F(1 - o.beta1) - F(1), g - s, g)
    t[:] = fma(F(1 - o.beta2) * g, g, t * F(o.beta2))
    rate, root = F(o.lr / (1 - o.beta1**step)), F((1 - o.beta2**step) ** 0.5)
    return w + -rate * s / (np.sqrt(t) / root + F(o.eps))


OPTIM = torch.optim
CASES = {
    "sgd": (pbox.SGD(lr=0.1), sgd, lambda p, d: OPTIM.SGD(p, lr=0.1, weight_decay=d)),
    "momentum": (
        pbox.Momentum(lr=0.1, momentum=0.8), momentum,
        lambda p, d: OPTIM.SGD(p, lr=0.1, momentum=0.8, weight_decay=d),
    ),
    "nesterov": (
        pbox.Nesterov(lr=0.1, momentum=0.8), nesterov,
        lambda p, d: OPTIM.SGD(p, lr=0.1, momentum=0.8, nesterov=True, weight_decay=d),
    ),
    "adagrad": (
        pbox.Adagrad(lr=0.1, lr_decay=0.01), adagrad,
        lambda p, d: OPTIM.Adagrad(p, lr=0.1, lr_decay=0.01, weight_decay=d),
    ),
    "rmsprop": (
        pbox.RMSProp(lr=0.01, alpha=0.95), rmsprop,
        lambda p, d: OPTIM.RMSprop(p, lr=0.01, alpha=0.95, weight_decay=d),
    ),
    "adadelta": (
        pbox.Adadelta(lr=0.5, rho=0.8), adadelta,
        lambda p, d: OPTIM.Adadelta(p, lr=0.5, rho=0.8, weight_decay=d),
    ),
    "adam": (
        pbox.Adam(lr=1e-3, beta1=0.8), adam,
        lambda p, d: OPTIM.Adam(p, lr=1e-3, betas=(0.8, 0.999), weight_decay=d),
    ),
    "adam-forgetful": (
        pbox.Adam(lr=1e-3, beta1=0.3), adam,
        lambda p, d: OPTIM.Adam(p, lr=1e-3, betas=(0.3, 0.999), weight_decay=d),
    ),
}  # fmt: skip
BIT_EQUAL_TO_TORCH = {"sgd", "momentum", "nesterov"}


def decayed(optimizer, decay):
    return type(optimizer)(**{**vars(optimizer), "weight_decay": decay})


def draws(seed=1):
    chance = np.random.default_rng(seed)
    return chance.standard_normal(SIZE, F), chance.standard_normal((STEPS, SIZE), F)


def run(optimizer, weights, gradients):
    """Run the C code, and yield the parameters after each step."""
    record, weights = optimizer.record(), weights.copy()
    states = np.zeros((2, SIZE), F)
    for step, gradient in enumerate(gradients, 1):
        native.library().update(
            ctypes.byref(record), native.address(weights), native.address(states[0]),
            native.address(states[1]), pointers([gradient]), 1, 1, SIZE, step, optimizer.lr,
        )  # fmt: skip
        yield weights


@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize("name", CASES)
def test_a_step_is_its_equation_bit_by_bit(name, decay):
    optimizer, equation, _ = CASES[name]
    optimizer = decayed(optimizer, decay)
    weights, gradients = draws()
    expected, s, t = weights, np.zeros(SIZE, F), np.zeros(SIZE, F)
    for step, found in enumerate(run(optimizer, weights, gradients), 1):
        gradient = fma(expected, F(decay), gradients[step - 1]) if decay else gradients[step - 1]
        expected = equation(optimizer, expected, gradient, s, t, step)
        assert expected.dtype == F
        np.testing.assert_array_equal(found.view(np.int32), expected.view(np.int32))


@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize("name", CASES)
def test_a_step_is_pytorchs(name, decay):
    """A step is PyTorch's, bit by bit if there is no root: MKL's roots are off by an ulp at times."""
    optimizer, _, torchs = CASES[name]
    weights, gradients = draws()
    parameter = torch.nn.Parameter(torch.from_numpy(weights.copy()))
    reference = torchs([parameter], decay)
    for step, found in enumerate(run(decayed(optimizer, decay), weights, gradients)):
        parameter.grad = torch.from_numpy(gradients[step].copy())
        reference.step()
        expected = parameter.detach().numpy()
        if name in BIT_EQUAL_TO_TORCH:
            np.testing.assert_array_equal(found, expected)
        else:
            # An ulp of the root is one or two ulps of the step, which is at most 5 times the rate
            # here. It may change the rounding of the new parameter. How often that happens depends
            # on the processor.
            steps = (step + 1) * np.finfo(F).eps
            np.testing.assert_allclose(found, expected, rtol=steps, atol=10 * steps * optimizer.lr)
            assert (found == expected).mean() > 0.85


def test_adam_without_a_mean_of_gradients_forgets_a_large_one():
    weights, gradients = np.zeros(SIZE, F), np.stack([np.full(SIZE, g, F) for g in (1e9, 1.0)])
    parameter = torch.nn.Parameter(torch.from_numpy(weights.copy()))
    reference = torch.optim.Adam([parameter], lr=0.5, betas=(0.0, 0.0))
    for step, found in enumerate(run(pbox.Adam(lr=0.5, beta1=0.0, beta2=0.0), weights, gradients)):
        parameter.grad = torch.from_numpy(gradients[step].copy())
        reference.step()
        np.testing.assert_allclose(found, parameter.detach().numpy(), rtol=1e-6)


@given(
    st.integers(1, 9), st.integers(1, 3000), st.integers(1, 9), st.integers(0, 2**32 - 1), st.booleans()
)  # fmt: skip
def test_gradients_are_added_in_the_order_of_the_workers(count, size, divisor, seed, plain):
    pushed = np.random.default_rng(seed).standard_normal((count, size), F)
    expected = pushed[0]
    for each in pushed[1:]:
        expected = expected + each
    expected = expected / F(divisor)
    found = np.zeros(size, F)
    record = native.OptimizerRecord() if plain else pbox.SGD(lr=1.0).record()
    native.library().update(
        ctypes.byref(record), native.address(found), None, None, pointers(list(pushed)),
        count, divisor, size, 1, 1.0,
    )  # fmt: skip
    np.testing.assert_array_equal(found, expected if plain else -expected)


def test_what_is_not_finite_reaches_the_result():
    pushed = [np.array([np.nan, np.inf, -np.inf, 1], F), np.array([1, 1, np.inf, 1], F)]
    found = np.zeros(4, F)
    native.library().update(
        ctypes.byref(native.OptimizerRecord()), native.address(found), None, None,
        pointers(pushed), 2, 1, 4, 1, 0.0,
    )  # fmt: skip
    np.testing.assert_array_equal(found, [np.nan, np.inf, np.nan, 2])


@pytest.mark.parametrize(
    "settings",
    [
        {"lr": -1.0}, {"lr": float("nan")}, {"lr": "1"}, {"beta1": 1.0}, {"eps": float("inf")},
        {"weight_decay": -0.1}, {"lr": 10**400},
    ],
)  # fmt: skip
def test_a_hyperparameter_out_of_range_is_refused(settings):
    with pytest.raises(UsageError, match=next(iter(settings))):
        pbox.Adam(**settings)


@pytest.mark.parametrize("name", CASES)
def test_settings_travel(name):
    optimizer = CASES[name][0]
    assert pbox.Optimizer.of(optimizer.settings()) == optimizer


@pytest.mark.parametrize(
    "settings",
    [5, {}, {"name": "Lion"}, {"name": "SGD"}, {"name": "SGD", "lr": 1, "weight_decay": 0, "x": 1}],
)
def test_settings_that_are_none_are_refused(settings):
    with pytest.raises(UsageError):
        pbox.Optimizer.of(settings)
