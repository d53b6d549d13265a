"""inside.py FAULTS SCRIPT FLAGS: runs a script in a process with faults.

FAULTS is a JSON object. All of its keys are optional:

    limits    the resource limits of the process, for example {"RLIMIT_FSIZE": number of bytes}
    stdout    the state of the standard output: "closed", "full" or "none"
    gone      path of a working directory that is removed before the script starts

A memory limit counts only the memory that the script takes in addition to the memory that the process already
has.
"""

import json
import os
import resource
import runpy
import shutil
import sys

del sys.argv[0]
faults = json.loads(sys.argv.pop(0))
for name, value in faults.get("limits", {}).items():
    if name == "RLIMIT_AS":
        with open("/proc/self/statm") as reader:
            value += int(reader.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(getattr(resource, name), (value, value))
stdout = faults.get("stdout")
if stdout == "closed":
    read, write = os.pipe()
    os.close(read)
    os.dup2(write, 1)
elif stdout == "full":
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
elif stdout == "none":
    os.close(1)
if faults.get("gone"):
    os.makedirs(faults["gone"])
    os.chdir(faults["gone"])
    shutil.rmtree(faults["gone"])
sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
