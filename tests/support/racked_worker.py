"""A worker that takes steps with a rack server's parameters until it is killed."""

import numpy as np

import innet
from innet.host.parameters import RackedParameters
from innet.servers import pbox

agent = innet.join()
parameters = RackedParameters(agent, [np.zeros(1000, np.float32)], pbox.SGD(lr=0.1))
while True:
    parameters.step([np.ones(1000, np.float32)])
    print("stepped", flush=True)  # noqa: T201
