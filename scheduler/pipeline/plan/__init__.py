"""One plan of a pipeline's iteration for whoever times it and whoever executes it.

`place` puts stages on workers, an order says what every worker computes (`orders`, `split_orders`, `generate`),
`plan_of` inserts the messages and checks the whole, `timing` says how long it takes, `torch_csv` writes and reads it
in torch.distributed.pipelining's form.
"""
