"""Uses the machine: files, locks, processes, replicas (processes that train together), downloads.

- How are files written, locked and compared? `files`, `locks`, `fingerprints`
- How does a process start others? `child_processes`, `child_command` (a failure becomes an exception),
  `child_jobs` (a fixed number at a time), `workers` (one function on many items)
- How do replicas work together? `cluster` (reads TF_CONFIG), `replica_launcher`, `replica_meeting` (they find
  and authenticate each other), `replica_group` (they exchange values), `value_encoding`, `shared_work`
- What does the machine have? `gpu_cards`, `gpu_libraries`, `network_namespace` (closed ports)
- What does a process show, and how does it end early? `terminal`, `quiet_tensorflow`, `stopping`
- How are files downloaded? `http_download`
"""
