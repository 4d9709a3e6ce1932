"""The description of the API: as JSON, and as a page that needs nothing but this server."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from anabranch.server.http.front import HttpCall

_POLICY: Final = (
    "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PAGE: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Anabranch: HTTP API</title>
<style>
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#123}
code{font-family:ui-monospace,monospace}details{border-top:1px solid #cdd;padding:.4rem 0}
summary{cursor:pointer}b{display:inline-block;width:4.5rem;color:#067}table{border-collapse:collapse;margin:.5rem 0}
td{padding:.1rem .8rem .1rem 0;vertical-align:top}h2{margin-top:2rem}input{font:inherit;width:100%;padding:.4rem}
</style>
<h1>Anabranch: HTTP API</h1>
<p>The same as JSON: <a href="/v1/openapi.json">/v1/openapi.json</a>. Try:
<code>curl -N localhost:7411/v1/streams/iot/sensors/events?follow</code></p>
<p><input id="find" placeholder="find"></p><main></main>
<script>
const make=(tag,text)=>{const e=document.createElement(tag);if(text!==undefined)e.textContent=text;return e};
fetch("/v1/openapi.json").then(r=>r.json()).then(api=>{
 const groups={};
 for(const [path,methods] of Object.entries(api.paths))for(const [method,op] of Object.entries(methods))
  (groups[op.tags[0]]??=[]).push([method,path,op]);
 const main=document.querySelector("main");
 for(const [tag,operations] of Object.entries(groups)){
  main.append(make("h2",tag));
  for(const [method,path,op] of operations){
   const box=make("details"),head=make("summary");
   head.append(make("b",method.toUpperCase()),make("code",path)," — "+op.summary);box.append(head);
   if(op.description)box.append(make("p",op.description));
   const table=make("table");
   for(const p of op.parameters){const row=make("tr");
    row.append(make("td",p.name),make("td",p.in),make("td",p.description??""));table.append(row)}
   const body=op.requestBody?.content?.["application/json"]?.schema?.properties??{};
   for(const [name,kind] of Object.entries(body)){const row=make("tr");
    row.append(make("td",name),make("td","body"),make("td",[kind.type??""].flat().join(" or ")));table.append(row)}
   box.append(table);
   for(const [kind] of Object.entries(op.requestBody?.content??{}))box.append(make("code",kind+" "));
   main.append(box)}}
 document.querySelector("#find").oninput=e=>{for(const box of document.querySelectorAll("details"))
  box.hidden=!box.textContent.toLowerCase().includes(e.target.value.toLowerCase())};
});
</script></html>
"""


async def openapi_document(call: HttpCall) -> Response:
    """This description."""
    return Response(call.front.description, media_type="application/json")


async def docs_page(call: HttpCall) -> Response:
    """This description as a page."""
    del call
    return Response(_PAGE, media_type="text/html", headers={"Content-Security-Policy": _POLICY})
