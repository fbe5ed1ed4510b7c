"""The controller's state, which the `registry` holds under one lock.

`inventory` has the switches, and `members` has the workers with their `streams` and their
`presence`. `store` keeps the state that outlives the controller. `messages` makes protobuf messages
of the plain values that the rules of jobs return.
"""
