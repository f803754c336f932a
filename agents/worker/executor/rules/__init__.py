"""The weight rules that a stage can be trained by; docs/asynchrony.md tells what each changes in what is learned.

`choice.weight_rule` makes the one that a plan names. Each is a module of its own: `flush`, `current` (PACI),
`predicted` (PipeOptim), `double_buffered` (PipeDream-2BW), `stashed` (PipeDream).
"""
