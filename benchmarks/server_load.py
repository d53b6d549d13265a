"""Measures serve.py under load on loopback: CPU seconds for each answer, latency, memory, and the state after
malformed requests.

    python benchmarks/server_load.py --model_dir=output/mrpc --results=server_load
    python benchmarks/server_load.py --model_dir=output/mrpc --engine=onnx --results=server_load_onnx

The model must be a classifier, such as the model of `make mrpc`. The texts have mixed lengths, from a few
words to more words than the model reads. In each round, a loop over the predictor answers the texts one by
one. Then serve.py answers the same texts for 1, 8 and 64 clients. A client sends its next request when it has
the answer to the last one. The CPU seconds of the loop and of the server are compared: those of the clients,
which run in this process, do not count.

After the rounds, 64 clients send --requests further texts, and the memory is read at several points. Then 8
clients send malformed requests. The server must answer each of them with 4xx. The memory, threads and open
files of the server are read before, between and after these requests.

All parts are limited: the rounds by --rounds, each part of a round by --seconds, the other requests by
--requests and --malformed, and the whole benchmark by --time_limit.
"""

import argparse
import asyncio
import csv
import itertools
import json
import math
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import time

import results

CLIENTS = (1, 8, 64)
HEAD = "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
MALFORMED = [
    b"", b"text", b'{"text_a": "a', b'{"text_a": NaN, "text_b": "b"}', b"[" * 5000 + b"]" * 5000, b"[]",
    b"{}", b"null", b'"text"', b'{"text_a": 7, "text_b": "b"}',
    b'{"text_a": "a", "text_b": ["b"]}',
    b'{"text_a": " ", "text_b": "b"}', b'{"text_a": "a", "text_b": "b", "more": 1}', b'{"text_a": "\xe9"}',
    b'{"text_a": "\\ud800", "text_b": "b"}', b"[" + b'{"text_a": "a", "text_b": "b"},' * 300 + b"{}]",
    b" " * 1_100_000, '{"text_a": "a"}'.encode("utf-16")]


def mixed_inputs(fields):
    """Returns 1,000 inputs of mixed lengths as a list of dicts, the same list in each call. The number of
    words in an input is log-uniform between 3 and 120."""
    path = os.path.join(results.ROOT, "samples", "MRPC", "dev.tsv")
    with open(path, encoding="utf-8", newline="") as lines:
        rows = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    words = " ".join(row[3] for row in rows).split()
    random_numbers, found = random.Random(0), []
    for _ in range(1000):
        number = round(3 * 40 ** random_numbers.random() / len(fields))
        starts = [random_numbers.randrange(len(words) - number) for _ in fields]
        found.append({name: " ".join(words[start:start + max(1, number)])
                      for name, start in zip(fields, starts)})
    return found


def loop_rounds(predictor, inputs, seconds):
    """Measures the predictor without a server: a loop calls the predictor directly. Yields the results for
    batches of 1 and of 32 inputs."""
    for size in (1, 32):
        predictor.answer([predictor.prepare(**next(inputs)) for _ in range(size)])  # warm-up
        times, start, cpu = [], time.monotonic(), time.process_time()
        while time.monotonic() - start < seconds:
            before = time.monotonic()
            predictor.answer([predictor.prepare(**next(inputs)) for _ in range(size)])
            times.append(time.monotonic() - before)
        yield {"kind": "loop", "clients": size, **summary(times, time.monotonic() - start, size),
               "cpu": 1000 * (time.process_time() - cpu) / len(times) / size}


def summary(times, seconds, size=1):
    """Returns a dict: the number of answers per second ("answers"), the median ("p50") and the 99th
    percentile ("p99") of the latency in ms, and the ratio of the two ("tail")."""
    ordered = sorted(times)
    p50, p99 = 1000 * statistics.median(times), 1000 * ordered[math.ceil(0.99 * (len(ordered) - 1))]
    return {"answers": size * len(times) / seconds, "p50": p50, "p99": p99, "tail": p99 / p50}


class Server:
    """A context manager that runs serve.py at an unused port, and terminates it at the end of the block."""

    def __init__(self, model_dir, flags):
        self._process = subprocess.Popen(
            [sys.executable, os.path.join(results.ROOT, "serve.py"), f"--model_dir={model_dir}", "--port=0",
             *flags], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8")
        for line in self._process.stderr:
            if match := re.search(r"Page: http://127\.0\.0\.1:(\d+)/", line):
                self.port = int(match[1])
                return
        raise SystemExit("serve.py did not start.")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._process.terminate()
        self.code = self._process.wait()

    def cpu(self):
        """Returns the CPU seconds that the server has used since its start."""
        with open(f"/proc/{self._process.pid}/stat") as reader:
            fields = reader.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def state(self):
        """Returns the state of the server process as a dict: its memory in MB ("memory"), its number of
        threads ("threads"), and its number of open files ("files")."""
        with open(f"/proc/{self._process.pid}/status") as reader:
            text = reader.read()
        return {"memory": int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1000,
                "threads": int(re.search(r"Threads:\s+(\d+)", text)[1]),
                "files": len(os.listdir(f"/proc/{self._process.pid}/fd"))}


async def ask(reader, writer, body):
    """Sends a request on an open connection; returns the status of the answer."""
    writer.write(f"{HEAD}{len(body)}\r\n\r\n".encode() + body)
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(int(re.search(rb"content-length: (\d+)", head)[1]))
    return int(head.split()[1])


async def load(port, bodies, clients, is_over):
    """Sends requests from several clients until `is_over()` is true.

    Returns:
      a list of pairs: status and seconds. A request without an answer has the status 0.
    """
    found = []

    async def client():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while not is_over():
            start = time.monotonic()
            try:
                status = await ask(reader, writer, next(bodies))
            except (OSError, EOFError):
                status = 0
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            found.append((status, time.monotonic() - start))
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(client() for _ in range(clients)))
    return found


def load_rounds(server, inputs, seconds):
    """Measures the server once for each number of clients in `CLIENTS`. Yields the results as dicts."""
    bodies = (json.dumps(item).encode() for item in inputs)
    for clients in CLIENTS:
        asyncio.run(load(server.port, bodies, clients, _Countdown(2 * clients)))  # warm-up
        start, cpu = time.monotonic(), server.cpu()
        found = asyncio.run(load(server.port, bodies, clients, _Deadline(start + seconds)))
        wrong = [status for status, _ in found if status != 200]
        if wrong:
            raise SystemExit(f"{len(wrong)} of {len(found)} requests failed: {sorted(set(wrong))}.")
        yield {"kind": "server", "clients": clients,
               **summary([taken for _, taken in found], time.monotonic() - start),
               "cpu": 1000 * (server.cpu() - cpu) / len(found), "memory": server.state()["memory"]}


class _Deadline:
    """A function that returns False until the time `end` of the clock `time.monotonic`, and then True."""

    def __init__(self, end):
        self._end = end

    def __call__(self):
        return time.monotonic() > self._end


class _Countdown:
    """A function that returns false for the first `count` calls, and true for all later calls."""

    def __init__(self, count):
        self._left = count

    def __call__(self):
        self._left -= 1
        return self._left < 0


def memory_rounds(server, inputs, number):
    """Yields the state of the server after each tenth of further requests by 64 clients."""
    bodies = (json.dumps(item).encode() for item in inputs)
    for tenth in range(11):
        asyncio.run(load(server.port, bodies, CLIENTS[-1], _Countdown(number // 10 if tenth else 0)))
        yield {"kind": "memory", "sent": tenth * (number // 10), **server.state()}


def malformed_rounds(server, number):
    """Yields the state of the server before the malformed requests, and after each quarter of them."""
    bodies, sent = itertools.cycle(MALFORMED), 0
    for part in (0, number // 4, number // 4, number // 4, number - 3 * (number // 4)):
        found = asyncio.run(load(server.port, bodies, 8, _Countdown(part)))
        sent += len(found)
        time.sleep(1)  # the server needs this time to close its connections
        answered = sum(400 <= status < 500 for status, _ in found)
        if answered < len(found):
            raise SystemExit(f"{len(found) - answered} of {len(found)} malformed requests were not answered "
                             f"with 4xx: {sorted({status for status, _ in found})}.")
        yield {"kind": "malformed", "sent": sent, **server.state()}


def main():
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_dir", required=True, help="output directory of a training")
    parser.add_argument("--engine", help="program that runs the model in the loop and in serve.py; see the "
                        "flag --engine of serve.py")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds")
    parser.add_argument("--seconds", type=float, default=60, help="seconds that each part of a round takes")
    parser.add_argument("--requests", type=int, default=50_000,
                        help="number of requests during which the memory is observed")
    parser.add_argument("--malformed", type=int, default=10_000, help="number of malformed requests")
    parser.add_argument("--time_limit", type=int, default=3600, help="seconds after which the benchmark ends")
    parser.add_argument("--flag", action="append", default=[], help="flag that is passed on to "
                        "serve.py. For example, --flag=--batch_wait_ms=0 passes on --batch_wait_ms=0")
    results.add_flag(parser)
    arguments = parser.parse_args()
    recorder = results.Recorder(
        arguments.results, {"answers": "1/s", "p50": "ms", "p99": "ms", "tail": "", "cpu": "ms", "ratio": "",
                            "memory": "MB", "threads": "", "files": ""}, packages=("fastapi", "uvicorn"))
    _end_after(arguments.time_limit)
    sys.path.insert(0, results.ROOT)
    # This import takes seconds, because it loads TensorFlow. So the arguments are checked first.
    from bertlib import serving

    def record(rounds):
        for row in rounds:
            recorder.add(**row)
            print(json.dumps({name: round(value, 3) if isinstance(value, float) else value
                              for name, value in row.items()}), flush=True)

    flags = [*([f"--engine={arguments.engine}"] if arguments.engine else []), *arguments.flag]
    with (serving.load(arguments.model_dir, engine=arguments.engine) as predictor,
          Server(arguments.model_dir, flags) as server):
        inputs = itertools.cycle(mixed_inputs(predictor.fields[:predictor.required]))
        for _ in range(arguments.rounds):
            record(with_ratio([*loop_rounds(predictor, inputs, arguments.seconds),
                               *load_rounds(server, inputs, arguments.seconds)]))
        record(memory_rounds(server, inputs, arguments.requests))
        record(malformed_rounds(server, arguments.malformed))
    print(f"exit code of serve.py after SIGTERM: {server.code}")
    recorder.write()


def with_ratio(rows):
    """Returns the rows of a round, each with the ratio of its CPU time to the CPU time of the first row."""
    return [{**row, "ratio": row["cpu"] / rows[0]["cpu"]} for row in rows]


def _end_after(seconds):
    """Ends this process with an error after some seconds. The error leaves the `with` blocks of the
    benchmark, and so it also ends the server."""
    def end(number, frame):
        raise SystemExit(f"The benchmark took longer than {seconds} seconds.")

    signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)


if __name__ == "__main__":
    main()
