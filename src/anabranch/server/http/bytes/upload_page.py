"""A page on which a person uploads a file: it needs nothing but this server, and uses the routes that tus clients use.

The page remembers in the browser what it has begun. After a lost connection it continues automatically. After a reload
the same file must be chosen again, because a browser lets a page read a file only once it was chosen."""

from __future__ import annotations

import base64
import hashlib
from typing import Final

from starlette.responses import Response

from anabranch.server.http.front import HttpCall

_STYLE: Final = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:36rem;margin:2rem auto;padding:0 1rem}
label{display:block;margin:1rem 0}
input{font:inherit;display:block;width:100%;box-sizing:border-box;padding:.4rem}
.drop{border:2px dashed GrayText;border-radius:.6rem;padding:2rem 1rem;text-align:center;cursor:pointer}
.drop:focus-within,.drop.over{border-color:AccentColor}
.drop input{width:auto;margin:1rem auto 0}
progress{width:100%;height:1.2rem;accent-color:AccentColor}
button{font:inherit;padding:.3rem 1rem}
"""
_SCRIPT: Final = """
"use strict";
const PART_BYTES = 8 << 20, SILENT_MS = 30000, PAUSE_MS_MAX = 10000, KEY = "anabranch.uploads";
const get = (id) => document.getElementById(id);
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const base64 = (text) =>
  btoa(encodeURIComponent(text).replace(/%(..)/g, (_, hex) => String.fromCharCode(parseInt(hex, 16))));
const token = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (each) => each.toString(16)).join("-");
let request = null, last = null, busy = false, runs = 0;

// What was begun and not finished: by stream, which file it is.
function remembered() {
  try { return JSON.parse(localStorage.getItem(KEY)) || {}; } catch { return {}; }
}
function remember(name, entry) {
  const all = remembered();
  delete all[name];
  if (entry) all[name] = entry;
  try { localStorage.setItem(KEY, JSON.stringify(all)); } catch { /* a reload then begins anew */ }
}
const isOf = (entry, file) =>
  entry && entry.file === file.name && entry.size === file.size && entry.changed === file.lastModified;

function say(text, link) {
  get("said").textContent = text;
  get("link").hidden = !link;
  if (link) get("link").href = link;
}
function show(sent, size) {
  get("bar").value = size ? sent / size : 1;
  say(`${(sent / 1e6).toFixed(1)} of ${(size / 1e6).toFixed(1)} MB`);
}

// The answer to a request; its status is 0 where the connection was lost, or nothing moved for a time.
function ask(method, url, headers, body, moved) {
  return new Promise((done) => {
    const made = (request = new XMLHttpRequest());
    let timer;
    const heard = () => { clearTimeout(timer); timer = setTimeout(() => made.abort(), SILENT_MS); };
    made.open(method, url);
    made.setRequestHeader("Tus-Resumable", "1.0.0");
    if (get("token").value) made.setRequestHeader("Authorization", `Bearer ${get("token").value}`);
    for (const [name, value] of Object.entries(headers)) made.setRequestHeader(name, value);
    made.upload.onprogress = (event) => { heard(); if (moved) moved(event.loaded); };
    made.onloadend = () => { clearTimeout(timer); done(made); };
    heard();
    made.send(body === undefined ? null : body);
  });
}
function problem(answer) {
  try { return JSON.parse(answer.responseText).detail || `status ${answer.status}`; } catch { return `status ${answer.status}`; }
}

// Returns true once the file is stored, and false where another run has begun, or the person has stopped this one.
async function upload(name, file, run) {
  const url = `/v1/streams/${name.split("/").map(encodeURIComponent).join("/")}/bytes`;
  const fresh = () => ({ file: file.name, size: file.size, changed: file.lastModified, key: token(), begun: false });
  let entry = remembered()[name], offset = null, pause = 500;
  if (!isOf(entry, file)) entry = fresh();
  remember(name, entry);
  while (run === runs) {
    let answer;
    const appends = entry.begun && offset !== null;
    if (appends) {
      const headers = { "Upload-Offset": offset, "Content-Type": "application/offset+octet-stream" };
      const part = file.slice(offset, offset + PART_BYTES);
      answer = await ask("PATCH", url, headers, part, (sent) => show(offset + sent, file.size));
    } else if (entry.begun) answer = await ask("HEAD", url, {});
    else {
      const metadata = `filename ${base64(file.name)}` + (file.type ? `,filetype ${base64(file.type)}` : "");
      const headers = { "Upload-Length": file.size, "Upload-Metadata": metadata, "Idempotency-Key": entry.key };
      answer = await ask("POST", url, headers);
    }
    if (run !== runs) break;
    if (answer.status >= 200 && answer.status < 300) {
      const length = answer.getResponseHeader("Upload-Length");
      if (length !== null && Number(length) !== file.size) throw new Error(`${name} is the upload of another file`);
      offset = Number(answer.getResponseHeader("Upload-Offset"));
      pause = 500;
      show(offset, file.size);
      if (!entry.begun) { entry.begun = true; remember(name, entry); }
      if (answer.getResponseHeader("Upload-Complete") === "?1") {
        remember(name, null);
        say(`${file.name} is stored as ${name}. `, url);
        return true;
      }
    } else if (answer.status === 0 || answer.status === 429 || answer.status >= 500) {
      offset = null;
      say("The connection is lost. Trying again …");
      await wait(pause);
      pause = Math.min(2 * pause, PAUSE_MS_MAX);
    } else if (answer.status === 409 && appends) offset = null;
    else if (answer.status === 404 && entry.begun) remember(name, (entry = fresh()));
    else {
      if (!entry.begun || answer.status === 410) remember(name, null);
      throw new Error(answer.status === 410 ? "It was not finished in time and was removed: start again in a minute" : problem(answer));
    }
  }
  return false;
}

async function start(file) {
  const name = get("name").value.trim();
  if (!/^[^/]+\\/[^/]+$/.test(name)) return say("First enter where to store it, as scope/name.");
  if (busy) return;
  const run = ++runs;
  [last, busy] = [file, true];
  get("stop").textContent = "Stop";
  get("work").hidden = get("stop").hidden = false;
  show(0, file.size);
  try { if (!(await upload(name, file, run))) return; }
  catch (error) { say(`${error.message}.`); }
  busy = false;
  get("stop").hidden = true;
}

get("stop").onclick = () => {
  if (!busy) return void start(last);
  busy = false;
  runs++;
  request.abort();
  get("stop").textContent = "Resume";
  say("Stopped. The part that was sent is kept.");
};
get("file").onchange = () => { if (get("file").files.length) start(get("file").files[0]); };
document.ondragover = (event) => { event.preventDefault(); get("drop").classList.add("over"); };
document.ondragleave = () => get("drop").classList.remove("over");
document.ondrop = (event) => {
  event.preventDefault();
  get("drop").classList.remove("over");
  if (event.dataTransfer.files.length) start(event.dataTransfer.files[0]);
};
const [name, entry] = Object.entries(remembered()).pop() || [];
if (name) {
  get("name").value = name;
  say(`${entry.file} is not finished: choose it again to continue where it stopped.`);
}
"""
_PAGE: Final = f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Anabranch: upload a file</title>
<style>{_STYLE}</style>
<h1>Upload a file</h1>
<label>Where to, as scope/name <input id="name" autocomplete="off" placeholder="iot/firmware"></label>
<label>Token, if the broker requires one <input id="token" type="password" autocomplete="off"></label>
<label id="drop" class="drop">Drop a file here, or choose one <input id="file" type="file"></label>
<div id="work" hidden><progress id="bar" value="0" max="1"></progress> <button id="stop" type="button">Stop</button></div>
<p role="status"><span id="said"></span><a id="link" hidden>Download it</a></p>
<script>{_SCRIPT}</script></html>
"""


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_HEADERS: Final = {
    "Content-Security-Policy": (
        f"default-src 'none'; connect-src 'self'; style-src {_hash(_STYLE)}; script-src {_hash(_SCRIPT)}; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


async def upload_page(call: HttpCall) -> Response:
    """A page for uploading a file."""
    del call
    return Response(_PAGE, media_type="text/html", headers=_HEADERS)
