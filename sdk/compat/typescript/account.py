"""Credentials, the queue, figures, and the server itself."""

import json

from client import has, method, same

QUEUED = "id agentName prompt status priority retryCount maxRetries createdAt"
CREDENTIAL = "id type label active createdAt"


@method("storeCredential")
def store_credential(client):
    body = {"type": "anthropic", "key": "sk-none", "label": "compat"}
    client.kept["credential"] = has(client.ask("POST", "/api/credentials", body)["credential"], CREDENTIAL)["id"]


@method("storeBedrockCredential")
def store_bedrock_credential(client):
    key = json.dumps({"accessKeyId": "a", "secretAccessKey": "b", "region": "us-east-1"})
    has(client.ask("POST", "/api/credentials", {"type": "bedrock", "key": key})["credential"], CREDENTIAL)


@method("listCredentials")
def list_credentials(client):
    for credential in client.ask("GET", "/api/credentials")["credentials"]:
        has(credential, CREDENTIAL)


@method("deleteCredential")
def delete_credential(client):
    client.ask("DELETE", f"/api/credentials/{client.kept['credential']}")


@method("enqueue")
def enqueue(client):
    body = {"agentName": "compat", "prompt": "Good evening.\n/say Good evening.", "priority": 1, "maxRetries": 0}
    client.kept["queued"] = has(client.ask("POST", "/api/queue", body)["item"], QUEUED)["id"]


@method("getQueueItem")
def get_queue_item(client):
    has(client.ask("GET", f"/api/queue/{client.kept['queued']}")["item"], QUEUED)


@method("listQueueItems")
def list_queue_items(client):
    for item in client.ask("GET", "/api/queue?limit=10")["items"]:
        has(item, QUEUED)


@method("getQueueStats")
def get_queue_stats(client):
    has(client.ask("GET", "/api/queue/stats")["stats"], "pending processing completed failed cancelled")


@method("cancelQueueItem")
def cancel_queue_item(client):
    # Of one session one item is worked on at a time: behind one that never comes to its end, another waits.
    session = client.ask("POST", "/api/sessions", {"agent": "compat"})["session"]["id"]
    item = {"agentName": "compat", "sessionId": session}
    client.ask("POST", "/api/queue", {**item, "prompt": "/hang", "priority": 1})
    waits = client.ask("POST", "/api/queue", {**item, "prompt": "/say Never."})["item"]["id"]
    try:
        same(client.ask("DELETE", f"/api/queue/{waits}")["item"]["status"], "cancelled")
    finally:
        client.ask("DELETE", f"/api/sessions/{session}")


@method("listUsageEvents")
def list_usage_events(client):
    for event in client.ask("GET", "/api/usage?agentName=compat&limit=10")["events"]:
        has(event, "id sessionId agentName eventType value createdAt")


@method("getUsageStats")
def get_usage_stats(client):
    fields = "totalInputTokens totalOutputTokens totalCacheCreationTokens totalCacheReadTokens totalToolCalls"
    has(client.ask("GET", "/api/usage/stats?agentName=compat")["stats"], f"{fields} totalMessages totalComputeSeconds")


@method("getAnalytics")
def get_analytics(client):
    has(client.ask("GET", "/api/analytics"), "agents sessions usage")


@method("health")
def health(client):
    said = has(client.ask("GET", "/health"), "status activeSessions activeSandboxes uptime pool version")
    same(said["status"], "ok")
    has(said["pool"], "total cold warming warm waiting running maxCapacity resumeWarmHits resumeColdHits preWarmHits")


@method("deleteAgent")
def delete_agent(client):
    client.ask("DELETE", "/api/agents/compat")
