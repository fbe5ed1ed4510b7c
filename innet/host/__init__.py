"""The host agent: from a tensor to packets and back.

A gradient passes through these modules, top down:

* `ddp`: PyTorch's communication hook
* `agent`: one worker of one job
* `reducer` and `quantizers`: float32 to integers
* `transport`: integers through the switch
* `window` and `timer`: which packets are due, pure logic
* `link`: sockets

`membership` talks to the controller. `innet.torch` builds on this package.
"""
