"""Starts and connects replicas (processes that train one model together), and passes values between them."""
