"""The host agent: from a tensor to packets and back.

The path of a gradient, top down: `ddp` (PyTorch's hook) -> `agent` (one worker of one job) ->
`reducer` and `quantizers` (float32 to integers) -> `transport` (integers through the switch) ->
`window` and `timer` (which packets are due, pure logic) -> `link` (sockets). `membership` talks to
the controller. `innet.torch` stands on it.
Of innet it imports `wire`, `sockets`, `errors` and the controller's client, nothing else.
"""
