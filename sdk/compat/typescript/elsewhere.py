"""Evaluations and the files of a project: methods of that client for what this server does not offer.

Of some of these methods only the request is known: it stands for their name.
"""

from functools import partial

from client import METHODS

SOME = "00000000-0000-4000-8000-000000000000"
CASES, RUNS = "/api/agents/by-path/eval-cases", "/api/agents/by-path/eval-runs"
QUESTION = {"question": "Do herons stand still?", "expectedTopics": ["herons"]}

REQUESTS = {
    "listEvalCases": ("GET", f"{CASES}?category=birds&isActive=true"),
    "createEvalCase": ("POST", CASES, QUESTION),
    "GET eval-cases/{id}": ("GET", f"{CASES}/{SOME}"),
    "PATCH eval-cases/{id}": ("PATCH", f"{CASES}/{SOME}", {"isActive": False}),
    "deleteEvalCase": ("DELETE", f"{CASES}/{SOME}"),
    "POST eval-cases/import": ("POST", f"{CASES}/import", {"cases": [QUESTION]}),
    "GET eval-cases/export": ("GET", f"{CASES}/export"),
    "startEvalRun": ("POST", RUNS, {}),
    "listEvalRuns": ("GET", RUNS),
    "GET eval-runs/{id}": ("GET", f"{RUNS}/{SOME}"),
    "getEvalRunResults": ("GET", f"{RUNS}/{SOME}/results"),
    "GET eval-runs/compare": ("GET", f"{RUNS}/compare?runA={SOME}&runB={SOME}"),
    "POST eval-runs/{id}/score": ("POST", f"{RUNS}/{SOME}/score", {}),
    "PATCH eval-results/{id}": ("PATCH", f"/api/agents/by-path/eval-results/{SOME}", {"humanScore": 5}),
    "listFiles": ("GET", "/api/files"),
    "uploadFile": ("POST", "/api/files", {"path": "a.txt", "content": "aGk="}),
    "getFileUrl": ("GET", f"/api/files/{SOME}"),
    "deleteFile": ("DELETE", f"/api/files/{SOME}"),
}


def asked(client, *, request):
    client.ask(*request)


METHODS.update({name: partial(asked, request=request) for name, request in REQUESTS.items()})
