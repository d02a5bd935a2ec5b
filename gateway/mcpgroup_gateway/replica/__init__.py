"""One process of the gateway.

running        from `RunOptions` to the exit code: signals, what is printed
composition    `Replica`, the one place that composes core, members, serving, front and admin
recording      logs, events, request log and metrics of the process
upkeep         what is done from time to time, and the first readiness
draining       the end after SIGTERM
admin_token    what actions on the admin port must present
"""
