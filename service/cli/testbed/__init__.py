"""A test bed of slow links on one machine: a network namespace a region, links with a latency and a bandwidth.

For the demonstration (`bace demo --wan`), the study of predictions (`make fidelity`), and by hand
(`python -m service.cli.testbed`). Linux, as root.
"""
