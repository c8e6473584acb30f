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

try:
    import jmespath
except ImportError:
    jmespath = None

PORT = int(os.environ.get("PORT", "8731"))
PAUSE_S = 0.5
URL = f"http://127.0.0.1:{PORT}"


def main():
    """Exits with 1 if the defect shows in a round, with 0 if it shows in none, and with 3 if that is unknown."""
    verdicts = []
    with tempfile.TemporaryDirectory(prefix="reproduce-") as folder:
        write_files(Path(folder))
        server = start(Path(folder))
        try:
            wait_until_healthy(server, Path(folder))
            for number in range(ROUNDS):
                answers = round_of(server, Path(folder))
                for step, answer in zip(STEPS, answers, strict=True):
                    if number == 0 and "tokens" not in step:
                        show(step, answer)
                verdicts.append(verdict(answers, RIGHT, WRONG, MEANS))
        finally:
            stop(server)
    print("\nEXPECTED: " + EXPECTED)
    print("ACTUAL:   " + ACTUAL)
    return conclusion(verdicts)


def round_of(server, folder):
    """Sends all requests once, and returns the answers."""
    answers = [{} for _ in STEPS]
    waiting, costs = [], []
    for number, step in enumerate(STEPS):
        if step.get("meanwhile"):
            sending = threading.Thread(target=answer_to, args=(number, answers, folder))
            sending.start()
            waiting.append(sending)
            time.sleep(1)
        elif "tokens" in step:
            before = cpu_s(server)
            answer_to(number, answers, folder)
            costs.append((step["tokens"], cpu_s(server) - before))
            show_cost(costs, answers[number])
        else:
            answer_to(number, answers, folder)
    for sending in waiting:
        sending.join()
    return answers


def verdict(answers, right, wrong, means):
    """Whether the answers of a round show the defect; None if they do not say.

    `right` and `wrong` are JMESPath conditions over the last answer. `means` is what the last answer should
    mean; if it is "the same", that is what the first answer means.
    """
    if wrong:
        if jmespath is None:
            return None
        whole = {**answers[-1], "steps": answers}
        shows, is_right = (holds(condition, whole) for condition in (wrong, right))
        return shows if shows or is_right else None
    if not means or 400 <= answers[-1].get("status", 0) < 500:
        return None
    expected = meaning_of(answers[0]) if means == "the same" else means
    return meaning_of(answers[-1]) != expected


def conclusion(verdicts):
    """Prints how often the defect shows, and returns the exit code."""
    shown, unknown = verdicts.count(True), verdicts.count(None)
    if unknown == len(verdicts):
        missing = "" if jmespath else " (with the package jmespath, this script may judge them)"
        print("NOT JUDGED: compare the answers with EXPECTED and ACTUAL" + missing)
        return 3
    print(f"THE DEFECT SHOWS in {shown} of {len(verdicts)} rounds")
    if len(verdicts) > 1:
        print("In each round the server may divide the answer into other chunks: it merges tokens while it is busy.")
    return 1 if shown else 0


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
            print("the server exited before it was healthy; see its log above")
            sys.exit(3)
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
    says.with_suffix(".new").write_text(json.dumps({"step": time.monotonic_ns(), "turns": turns}))
    says.with_suffix(".new").rename(says)
    answers[number] = send(step, answers)
    ends = time.monotonic() + step.get("limit_s", 30)
    while step.get("until") and not holds(step["until"], answers[number]) and time.monotonic() < ends:
        time.sleep(PAUSE_S)
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
        events = [json.loads(each) for each in data if each != "[DONE]"]
        return {**result, "events": events, "stream": added_up(events)}
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
    if jmespath is not None:
        return jmespath.search(path, {"steps": answers})
    value = {"steps": answers}
    for name, index in re.findall(r"(\w+)|\[(-?\d+)\]", path):
        value = value[name] if name else value[int(index)]
    return value


def holds(condition, answer):
    try:
        return jmespath is not None and jmespath.search(condition, answer) is True
    except jmespath.exceptions.JMESPathTypeError:
        return False


def added_up(events):
    """The body that the deltas of a stream add up to, as far as the verdict looks at it."""
    if any("choices" in event for event in events):
        return added_up_chat(events)
    responses = any("response" in event or "output_index" in event for event in events)
    return added_up_response(events) if responses else added_up_message(events)


def added_up_chat(events):
    body, choices = {}, {}
    for event in events:
        body.update({key: value for key, value in event.items() if key != "choices" and value is not None})
        for each in event.get("choices") or ():
            choice = choices.setdefault(each["index"], {"index": each["index"], "message": {}})
            choice.update({k: v for k, v in each.items() if k not in ("delta", "index")})
            message, delta = choice["message"], each.get("delta") or {}
            for key, value in delta.items():
                if key == "tool_calls":
                    for call in value or ():
                        add_call(message.setdefault("tool_calls", {}), call)
                elif key == "role" or value is None:
                    message.setdefault(key, value)
                else:
                    message[key] = (message.get(key) or "") + value
    for choice in choices.values():
        if calls := choice["message"].get("tool_calls"):
            choice["message"]["tool_calls"] = [call for _, call in sorted(calls.items())]
    return {**body, "choices": [choice for _, choice in sorted(choices.items())]}


def add_call(calls, piece):
    call = calls.setdefault(piece["index"], {"id": piece.get("id"), "function": {}})
    function = piece.get("function") or {}
    if function.get("name"):
        call["function"].setdefault("name", function["name"])
    if function.get("arguments") is not None:
        call["function"]["arguments"] = call["function"].get("arguments", "") + function["arguments"]


def added_up_response(events):
    body, items, texts = {}, {}, {}
    for event in events:
        body.update(event.get("response") or {})
        index = event.get("output_index")
        if index is not None:
            items.setdefault(index, {}).update(event.get("item") or {})
        if isinstance(event.get("delta"), str):
            key = index, event["type"].split(".")[1]
            texts[key] = texts.get(key, "") + event["delta"]
    for index, item in items.items():
        if item.get("type") == "function_call":
            item["arguments"] = texts.get((index, "function_call_arguments"), "")
        elif item.get("type") in ("message", "reasoning"):
            kind = "output_text" if item["type"] == "message" else "reasoning_text"
            item["content"] = [{"type": kind, "text": texts.get((index, kind), "")}]
    return {**body, "output": [item for _, item in sorted(items.items())]}


def added_up_message(events):
    body, blocks, texts = {}, {}, {}
    for event in events:
        body.update(event.get("message") or {})
        index, delta = event.get("index"), event.get("delta") or {}
        if index is None:
            body.update(delta)
            continue
        blocks.setdefault(index, {}).update(event.get("content_block") or {})
        piece = delta.get("text") or delta.get("thinking") or delta.get("partial_json") or ""
        texts[index] = texts.get(index, "") + piece
    for index, block in blocks.items():
        if block.get("type") == "tool_use":
            block["input"] = value_of(texts[index] or "{}")
        else:
            block["thinking" if block.get("type") == "thinking" else "text"] = texts[index]
    return {**body, "content": [block for _, block in sorted(blocks.items())]}


def meaning_of(answer):
    """The reasoning, text and calls of an answer over any API, without the white space around texts."""
    body = answer.get("stream") or answer.get("body") or {}
    reasoning, text, calls = [], [], []
    for choice in body.get("choices") or ():
        message = choice["message"]
        reasoning.append(message.get("reasoning") or message.get("reasoning_content") or "")
        text.append(message.get("content") or "")
        functions = [call["function"] for call in message.get("tool_calls") or ()]
        calls += [[each.get("name"), value_of(each.get("arguments"))] for each in functions]
    for item in body.get("output") or ():
        if item["type"] == "function_call":
            calls.append([item.get("name"), value_of(item.get("arguments"))])
        else:
            texts = reasoning if item["type"] == "reasoning" else text
            texts += [part.get("text") or "" for part in item.get("content") or ()]
    for block in body.get("content") or ():
        if block["type"] == "tool_use":
            calls.append([block.get("name"), block.get("input")])
        else:
            reasoning.append(block.get("thinking") or "")
            text.append(block.get("text") or "")
    broken = answer.get("broken") or body.get("error") or any("error" in each for each in answer.get("events", ()))
    if broken or answer.get("status") != 200:
        return {"error": True}
    return {"reasoning": "".join(reasoning).strip(), "text": "".join(text).strip(), "calls": calls}


def value_of(arguments):
    try:
        return json.loads(arguments or "")
    except ValueError:
        return arguments


def show(step, answer):
    print(f"\n{step['method']} {step['path']}")
    print(json.dumps(step.get("body") or step.get("content"), ensure_ascii=False))
    for pieces in step["say"]:
        print("THE MODEL SAYS: " + json.dumps("".join(map(str, pieces)), ensure_ascii=False))
    print("ANSWER: " + json.dumps(answer, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    sys.exit(main())
