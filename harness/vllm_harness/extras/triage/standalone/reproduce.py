import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

PORT = int(os.environ.get("PORT", "8731"))
TRIES = 20
URL = f"http://127.0.0.1:{PORT}"


def main():
    with tempfile.TemporaryDirectory(prefix="reproduce-") as folder:
        write_files(Path(folder))
        server = start(Path(folder))
        try:
            wait_until_healthy(server, Path(folder))
            answers = [{} for _ in STEPS]
            waiting, costs = [], []
            for number, step in enumerate(STEPS):
                if step.get("meanwhile"):
                    sending = threading.Thread(target=answer_to, args=(number, answers, Path(folder)))
                    sending.start()
                    waiting.append(sending)
                    time.sleep(1)
                elif "tokens" in step:
                    before = cpu_s(server)
                    answer_to(number, answers, Path(folder))
                    costs.append((step["tokens"], cpu_s(server) - before))
                    show_cost(costs, answers[number])
                else:
                    answer_to(number, answers, Path(folder))
            for sending in waiting:
                sending.join()
            for step, answer in zip(STEPS, answers, strict=True):
                if "tokens" not in step:
                    show(step, answer)
        finally:
            stop(server)
    print("\nEXPECTED: " + EXPECTED)
    print("ACTUAL:   " + ACTUAL)
    return answers


def write_files(folder):
    for name, content in FILES.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False))
    (folder / "reproduce_says.py").write_text(LOGITS_PROCESSOR)


def start(folder):
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(folder / "model")]
    command += [word.replace("{folder}", str(folder)) for word in FLAGS]
    if TOKENIZER:
        command += ["--tokenizer", TOKENIZER]
    command += ["--host", "127.0.0.1", "--port", str(PORT)]
    print("$ " + " ".join(command), flush=True)
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    environ = {**os.environ, **ENV, "PYTHONPATH": path, "REPRODUCE_SAYS": str(folder / "says.json")}
    environ["TMPDIR"] = str(folder)  # vLLM leaves its sockets there
    with (folder / "server.log").open("wb") as log:
        return subprocess.Popen(command, env=environ, stdout=log, stderr=log, start_new_session=True)


def stop(server):
    """Sends SIGTERM to the server alone, which then frees its shared memory; kills the processes that remain."""
    server.terminate()
    try:
        server.wait(60)
    except subprocess.TimeoutExpired:
        print("the server did not exit within 60 s of SIGTERM and is killed")
    try:
        os.killpg(server.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    server.wait()


def wait_until_healthy(server, folder):
    while True:
        if server.poll() is not None:
            print((folder / "server.log").read_text(errors="replace")[-8000:])
            sys.exit("the server exited before it was healthy; see its log above")
        try:
            if urllib.request.urlopen(URL + "/health", timeout=5).status == 200:
                return
        except OSError:
            time.sleep(1)


def cpu_s(server):
    """The CPU time of the API server's process, without that of the engine."""
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def show_cost(costs, answer):
    tokens, seconds = costs[-1]
    times = f"{seconds / costs[-2][1]:.1f} times the previous one" if len(costs) > 1 and costs[-2][1] else ""
    result = answer.get("broken", "a body")
    if events := answer.get("events"):
        result = f"{len(events):,} events, {1000 * seconds / len(events):.2f} ms each"
    print(f"{tokens:9,} tokens: {seconds:8.2f} s of the API server's CPU  {times}  ({result})", flush=True)


def answer_to(number, answers, folder):
    step = STEPS[number]
    turns = [[token for piece in pieces for token in ids_of(piece)] for pieces in step["say"]]
    says = folder / "says.json"
    says.with_suffix(".new").write_text(json.dumps({"step": number, "turns": turns}))
    says.with_suffix(".new").rename(says)
    answers[number] = send(step, answers)
    for _ in range(TRIES if step.get("until") else 0):
        if holds(step["until"], answers[number]):
            break
        time.sleep(0.5)
        answers[number] = send(step, answers)


def ids_of(text):
    if isinstance(text, int):
        return [text]
    if isinstance(text, list):
        text = "".join(each * count for each, count in text)
    body = {"model": "model", "prompt": text, "add_special_tokens": False}
    return read(request("POST", "/tokenize", body))["body"]["tokens"]


def send(step, answers):
    body = step.get("body")
    if body is not None:
        body = {"model": "model", **filled(body, answers)}
    content = step.get("content")
    if content is not None:
        content = content.replace("{model}", "model").encode()
    sent = request(step["method"], filled(step["path"], answers), body, content, step.get("headers", {}))
    return read(sent, step.get("hang_up_after"), step.get("limit_s", 30))


def request(method, path, body=None, content=None, headers=()):
    data = content if content is not None else None if body is None else json.dumps(body).encode()
    kind = {"Content-Type": "application/json"} if data is not None else {}
    return urllib.request.Request(URL + path, data, {**kind, **dict(headers)}, method=method)


def read(sent, hang_up_after=None, limit_s=60):
    lines, broken = [], None
    try:
        answer = urllib.request.urlopen(sent, timeout=limit_s)
    except urllib.error.HTTPError as error:
        answer = error
    try:
        for line in answer:
            lines.append(line)
            if hang_up_after and sum(each.startswith(b"data:") for each in lines) >= hang_up_after:
                break
    except Exception as error:
        broken = f"{type(error).__name__}: {error}"
    finally:
        answer.close()
    result = {"status": answer.status, **({"broken": broken} if broken else {})}
    text = b"".join(lines).decode("utf-8", "replace")
    if answer.headers.get("content-type", "").startswith("text/event-stream"):
        data = [line[5:].strip() for line in text.splitlines() if line.startswith("data:")]
        return {**result, "events": [json.loads(each) for each in data if each != "[DONE]"]}
    try:
        return {**result, "body": json.loads(text)}
    except ValueError:
        return {**result, "text": text}


def filled(value, answers):
    """Replaces references to earlier answers, such as `{steps[0].body.id}`, in a value."""
    if isinstance(value, dict):
        return {key: filled(each, answers) for key, each in value.items()}
    if isinstance(value, list):
        return [filled(each, answers) for each in value]
    if not isinstance(value, str):
        return value
    whole = re.fullmatch(r"\{(steps\[.+?\][^{}]*)\}", value)
    if whole:
        return part(whole[1], answers)
    return re.sub(r"\{(steps\[.+?\][^{}]*)\}", lambda match: str(part(match[1], answers)), value)


def part(path, answers):
    try:
        import jmespath

        return jmespath.search(path, {"steps": answers})
    except ImportError:
        value = {"steps": answers}
        for name, index in re.findall(r"(\w+)|\[(-?\d+)\]", path):
            value = value[name] if name else value[int(index)]
        return value


def holds(condition, answer):
    try:
        import jmespath
    except ImportError:
        return False
    return jmespath.search(condition, answer) is True


def show(step, answer):
    print(f"\n{step['method']} {step['path']}")
    print(json.dumps(step.get("body") or step.get("content"), ensure_ascii=False))
    for pieces in step["say"]:
        print("THE MODEL SAYS: " + json.dumps("".join(map(str, pieces)), ensure_ascii=False))
    print("ANSWER: " + json.dumps(answer, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
