// Made from docs/openapi.json by `make sdk`. Do not edit.
/* eslint-disable */

export interface paths {
    "/api/agents": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List agents */
        get: operations["listAgents"];
        put?: never;
        /**
         * Deploy an agent
         * @description Under a name that is taken, the next version of that agent. Sessions keep the version they began
         *     with.
         */
        post: operations["deployAgent"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/agents/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Look at an agent */
        get: operations["getAgent"];
        put?: never;
        post?: never;
        /**
         * Delete an agent
         * @description Its sessions are ended, and hidden at once.
         */
        delete: operations["deleteAgent"];
        options?: never;
        head?: never;
        /**
         * Change an agent's variables and settings
         * @description Sandboxes that start from now on have them.
         */
        patch: operations["updateAgent"];
        trace?: never;
    };
    "/api/agents/{name}/config": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Read the free settings of an agent */
        get: operations["getAgentConfig"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        /**
         * Change the free settings of an agent
         * @description Those that are named are replaced, the others stay. The body is the settings, or an object with nothing but them as
         *     `config`. `preWarmCount` goes before `prewarm` of `ash.toml`.
         */
        patch: operations["updateAgentConfig"];
        trace?: never;
    };
    "/api/agents/{name}/files": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the files of an agent */
        get: operations["listAgentFiles"];
        put?: never;
        /**
         * Put files into an agent
         * @description All of them or none. It makes the next version, which is active then.
         */
        post: operations["writeAgentFiles"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/agents/{name}/files/{path}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Read a file of an agent */
        get: operations["getAgentFile"];
        put?: never;
        post?: never;
        /**
         * Take a file out of an agent
         * @description It makes the next version, which is active then. `CLAUDE.md` stays.
         */
        delete: operations["deleteAgentFile"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/agents/{name}/versions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the versions of an agent, newest first */
        get: operations["listAgentVersions"];
        put?: never;
        /**
         * Add a version of an agent
         * @description It has the files of the version that it is made from, and its instructions unless it brings others. New
         *     sessions get it once it is activated.
         */
        post: operations["createAgentVersion"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/agents/{name}/versions/{version}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Look at a version of an agent */
        get: operations["getAgentVersion"];
        put?: never;
        post?: never;
        /**
         * Delete a version of an agent
         * @description Sessions keep what they were made with. The active version stays.
         */
        delete: operations["deleteAgentVersion"];
        options?: never;
        head?: never;
        /**
         * Change a version of an agent
         * @description Sessions keep what they were made with.
         */
        patch: operations["updateAgentVersion"];
        trace?: never;
    };
    "/api/agents/{name}/versions/{version}/activate": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Give a version of an agent to new sessions */
        post: operations["activateAgentVersion"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/analytics": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * See the account in figures
         * @description Agents and sessions as they are now; what runs consumed, in the time that is asked for.
         */
        get: operations["getAnalytics"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/api-keys": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List API keys */
        get: operations["listApiKeys"];
        put?: never;
        /**
         * Make an API key
         * @description Its secret is shown this once. The server's own tenant makes keys for other tenants, too.
         */
        post: operations["createApiKey"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/api-keys/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** Revoke an API key */
        delete: operations["revokeApiKey"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/attachments/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Read an attachment */
        get: operations["readAttachment"];
        put?: never;
        post?: never;
        /**
         * Delete an attachment
         * @description The copy in the workspace goes with it, unless it was changed: then it is the agent's.
         */
        delete: operations["deleteAttachment"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/cloud/sessions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the sessions that are in the cloud, newest first
         * @description Whichever server has brought them there.
         */
        get: operations["listCloudSessions"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/cloud/sessions/{id}/import": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Make a session that is in the cloud one of this server
         * @description It is `paused`, with its log, its runs and its snapshots; a resume brings its files. It keeps its id, unless there is
         *     such a session here. Its agent is made here, unless it is there. Whoever had it before should not go on with it. What cannot
         *     be read there is done without, if it can be, and is named in `warnings`.
         */
        post: operations["importCloudSession"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/credentials": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List credentials */
        get: operations["listCredentials"];
        put?: never;
        /**
         * Keep a credential
         * @description One that no session can use is kept too, as clients of the original expect it; it says why in `unusable`.
         */
        post: operations["createCredential"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/credentials/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** Forget a credential */
        delete: operations["deleteCredential"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/internal/api-keys": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Make an API key for a tenant
         * @description Its secret is shown this once. A tenant that is not there yet is made. The key that opens this route is
         *     `ASH_INTERNAL_SECRET`.
         */
        post: operations["createTenantKey"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/internal/runners": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the machines that run sandboxes
         * @description There is this one. The key that opens this route is `ASH_INTERNAL_SECRET`.
         */
        get: operations["listRunners"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/queue": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the items of the queue, newest first */
        get: operations["listQueueItems"];
        put?: never;
        /**
         * Add a prompt to the queue
         * @description It is worked on when there is room, by priority, then by age; in the session that it names, or in a new one. If a
         *     failure cuts it, it is tried again in the same session.
         */
        post: operations["enqueue"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/queue/stats": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Count the items of the queue */
        get: operations["getQueueStats"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/queue/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Look at an item of the queue */
        get: operations["getQueueItem"];
        put?: never;
        post?: never;
        /**
         * Withdraw an item of the queue
         * @description Only while it is `pending`. To end one that is worked on, interrupt its session.
         */
        delete: operations["cancelQueueItem"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List sessions, newest first */
        get: operations["listSessions"];
        put?: never;
        /**
         * Make a session
         * @description Answers when its agent is up: the session is `active`.
         */
        post: operations["createSession"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/import": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Import a session
         * @description The body is a bundle, as an export has made it, of any server and any tenant. The session is `paused`, with its log, its
         *     runs and its snapshots; a resume brings its files. It keeps its id, unless there is such a session here or in
         *     the cloud. Its agent is made here, unless it is there. A bundle that is not whole changes nothing.
         */
        post: operations["importSession"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Look at a session */
        get: operations["getSession"];
        put?: never;
        post?: never;
        /**
         * End a session for ever
         * @description Ending one that has ended changes nothing.
         */
        delete: operations["endSession"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{id}/attachments": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the files that are attached to a session, oldest first */
        get: operations["listAttachments"];
        put?: never;
        /**
         * Attach a file to a session
         * @description It is kept beside the session, and the agent finds a copy in `attachments` of its workspace: under another name, if
         *     there is such a file already. If the workspace is in a snapshot alone, the copy is made when the session is back.
         */
        post: operations["attachFile"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{id}/config": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        /**
         * Change a session's options
         * @description The model, the tools and what is asked about change with the next message; the rest with the next sandbox.
         */
        patch: operations["configureSession"];
        trace?: never;
    };
    "/api/sessions/{id}/egress": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List what a session's sandbox asked of others
         * @description The latest requests to the model and to other hosts, newest first, since the server started. Without bodies, headers
         *     and queries.
         */
        get: operations["listEgress"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{id}/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List what happened in a session */
        get: operations["listEvents"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{id}/exec": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Run a command in a session's workspace
         * @description A run that goes on is not disturbed.
         */
        post: operations["execCommand"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{id}/export": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Export a session
         * @description One file with everything that another server needs to go on with it: its conversation, its files, its agent, and a
         *     manifest with the digest of each part. Variables and credentials are not in it. The session is not touched.
         */
        get: operations["exportSession"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{id}/files": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the files of a session
         * @description Ordinary files only, unless directories are asked for; links are not followed. `node_modules`, `.git`, `__pycache__`, `.DS_Store`, and
         *     what ends in `.sock`, `.lock` or `.pid` are left out.
         */
        get: operations["listFiles"];
        put?: never;
        /**
         * Write files of a session
         * @description Each is written whole or not at all, with the directories above it. One that is not written does not
         *     keep the others from it. A run that goes on is not disturbed.
         */
        post: operations["writeFiles"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{id}/files/{path}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Read a file of a session */
        get: operations["readFile"];
        put?: never;
        post?: never;
        /**
         * Delete a file of a session
         * @description A link is deleted itself, and not what it leads to. A directory is deleted only with `recursive=true`, with
         *     everything in it, however deep.
         */
        delete: operations["deleteFile"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{id}/fork": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Fork a session
         * @description A new session begins where this one was: with its conversation and its files as of a snapshot, or the end of a turn;
         *     without either, as they are now. It is `paused`. This one is not touched, and may go on meanwhile.
         */
        post: operations["forkSession"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{id}/interrupt": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Interrupt a run
         * @description The one that goes on, or the one that is named, also if it still waits. Answers when it is over.
         */
        post: operations["interruptSession"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{id}/logs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List what a session's sandboxes say about themselves
         * @description With when they came and went. A line keeps its `index`, and later ones have higher ones, also after the session was
         *     paused, stopped and resumed: whoever asks for those after the last that they have misses none, or is told by `gap`.
         */
        get: operations["listLogs"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{id}/messages": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the messages of a conversation
         * @description What the session was rewound from is not among them, nor is what was sent before a rewind or a fork and never begun;
         *     its events have it all.
         */
        get: operations["listMessages"];
        put?: never;
        /**
         * Send a message
         * @description Answers with an event stream that ends with `done`; or, with `detach` or `Prefer: respond-async`, at
         *     once. A client that goes away does not stop the run. While a run goes on, a message waits for its
         *     turn. A message that is repeated with its idempotency key is told from its beginning.
         */
        post: operations["sendMessage"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{id}/pause": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Pause a session
         * @description Its sandbox is frozen where it is, in the middle of a turn too.
         */
        post: operations["pauseSession"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{id}/permissions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the permission questions that are open
         * @description In the order in which they were asked. They stay open while the session is paused, and after the server was
         *     started anew.
         */
        get: operations["listPermissions"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{id}/permissions/{permission}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Answer a permission question
         * @description The first answer counts, and is kept until the agent has it, also over the end of the server. The same answer
         *     again is fine; another one is refused, as is one to a question that is not open any more.
         */
        post: operations["decidePermission"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{id}/resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Bring a session back
         * @description The answer says what of it came back. An active session is left as it is.
         */
        post: operations["resumeSession"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{id}/rewind": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Rewind a session
         * @description Its conversation and its files become what they were when a snapshot was made, or at the end of a turn. What is there
         *     is captured first: nothing is lost, and a rewind can be rewound. A session that was active is active again.
         */
        post: operations["rewindSession"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{id}/runs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List a session's runs, newest first */
        get: operations["listRuns"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{id}/runs/{run}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Look at a run */
        get: operations["getRun"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{id}/snapshots": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the snapshots of a session's files, newest first */
        get: operations["listSnapshots"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{id}/snapshots/{snapshot}/diff": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Compare the files of two snapshots
         * @description Says how the other one became this one. At most 1000 files are named; of text up to 256 KiB the lines that differ are
         *     shown, as `patch` reads them.
         */
        get: operations["diffSnapshots"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{id}/stop": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Stop a session
         * @description A run that goes on is cancelled and the sandbox destroyed. A resume brings the session back.
         */
        post: operations["stopSession"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{id}/stream": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Follow a session
         * @description Replays the log after `Last-Event-ID` or `after`, or from its beginning, and goes on with what comes.
         *     If the log does not hold what comes after the cursor, the first event is `gap`.
         */
        get: operations["followSession"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{id}/workspace": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Download the workspace of a session
         * @description Without `.git`, `node_modules` and other things that tools make again, without `.env` files, and without
         *     links that lead out of it. At most 100 MB packed and 1 GB unpacked.
         */
        get: operations["downloadWorkspace"];
        put?: never;
        /**
         * Upload files into the workspace of a session
         * @description What is not in the bundle stays. One with anything in it that leads out of the workspace, or that is
         *     neither a file, a directory nor a link, changes nothing.
         */
        post: operations["uploadWorkspace"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/usage": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List what runs consumed, newest first */
        get: operations["listUsage"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/usage/stats": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Sum up what runs consumed */
        get: operations["getUsageStats"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/docs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Read the API reference */
        get: operations["getReference"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/docs/json": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Read this document */
        get: operations["getOpenapi"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/health": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** See whether the server is there */
        get: operations["getHealth"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/health/ready": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** See whether the server takes work */
        get: operations["getReadiness"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/metrics": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Measure the server */
        get: operations["getMetrics"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /**
         * @description What a session does.
         * @enum {string}
         */
        Activity: "idle" | "running" | "frozen" | "rewinding";
        /** @description A deployed agent. */
        Agent: {
            /**
             * Format: uuid
             * @description Its id.
             */
            id: string;
            /** @description Its name. */
            name: string;
            /** @description Whose it is. */
            tenantId: string;
            /**
             * Format: int32
             * @description The version that new sessions get.
             */
            version: number;
            /** @description Where it was deployed from, or where its files are. */
            path: string;
            /** @description Names of its variables; the values are never shown. */
            env: {
                [key: string]: string;
            };
            /** @description What runs it. */
            runtime: string;
            /** @description Why none of its sessions can be started now, if none can. */
            problem?: string | null;
            /** @description The model it runs on, if it says so. */
            model: string | null;
            /**
             * Format: int64
             * @description How many files it has.
             */
            files: number;
            /**
             * Format: int64
             * @description How many bytes they have.
             */
            bytes: number;
            /**
             * Format: date-time
             * @description When it was first deployed.
             */
            createdAt: string;
            /**
             * Format: date-time
             * @description When it was last changed.
             */
            updatedAt: string;
        };
        /** @description One agent. */
        AgentBody: {
            /** @description The agent. */
            agent: components["schemas"]["Agent"];
        };
        /** @description The free settings of an agent. */
        AgentConfig: {
            /**
             * @description The settings. `preWarmCount` is how many sandboxes wait for its sessions; the rest is for programs that run
             *     agents.
             */
            config: {
                [key: string]: unknown;
            };
        };
        /** @description An agent that is gone. */
        AgentDeleted: {
            /** @description Always true. */
            ok: boolean;
        };
        /** @description A file of an agent, sent along. */
        AgentFile: {
            /** @description Where, relative to the agent's directory. */
            path: string;
            /** @description The content in base64. */
            content: string;
            /** @description Whether it can be run. If it is not said, a file that begins with `#!` can. */
            executable?: boolean | null;
        };
        /** @description A file of an agent, with its content. */
        AgentFileContent: {
            /** @description Where. */
            path: string;
            /** @description The content; what is no text is shown as far as it is. */
            content: string;
            /**
             * Format: int64
             * @description How many bytes it has.
             */
            size: number;
        };
        /** @description A file that is not in an agent any more. */
        AgentFileDeleted: {
            /** @description Where it was. */
            path: string;
            /** @description Always true. */
            deleted: boolean;
            /**
             * Format: int32
             * @description The version without it, which is active now.
             */
            version: number;
        };
        /** @description A file of an agent. */
        AgentFileInfo: {
            /** @description Where. */
            path: string;
            /**
             * Format: int64
             * @description How many bytes it has.
             */
            size: number;
            /**
             * Format: date-time
             * @description When it was captured.
             */
            modifiedAt: string;
        };
        /** @description The files of an agent. */
        AgentFiles: {
            /** @description The files, by path. */
            files: components["schemas"]["AgentFileInfo"][];
        };
        /** @description Files that were put into an agent. */
        AgentFilesWritten: {
            /**
             * Format: int64
             * @description How many.
             */
            written: number;
            /**
             * Format: int32
             * @description The version that has them, which is active now.
             */
            version: number;
        };
        /** @description One version of an agent. Sessions keep what they were made with, whatever becomes of it. */
        AgentVersion: {
            /**
             * Format: uuid
             * @description Its id.
             */
            id: string;
            /** @description Whose it is. */
            tenantId: string;
            /**
             * Format: int32
             * @description Which version.
             */
            versionNumber: number;
            /** @description What people call it: `v` and its number, if nobody says so. */
            name: string;
            /** @description The agent's name. */
            agentName: string;
            /** @description Whether new sessions get this one. */
            isActive: boolean;
            /** @description What is new in it. */
            releaseNotes: string | null;
            /** @description The files that it knows things from, as somebody has listed them. */
            knowledgeFiles: string[] | null;
            /** @description Always null: nobody is recorded. */
            createdBy: string | null;
            /**
             * Format: int32
             * @description What it consists of, by number: `agentVersion` of the sessions that are made with it now.
             */
            agentVersion: number;
            /** @description A digest of its files: the same files have the same. */
            digest: string;
            /** @description Its instructions. */
            systemPrompt: string;
            /**
             * Format: int64
             * @description How many files it has.
             */
            files: number;
            /**
             * Format: int64
             * @description How many bytes they have.
             */
            bytes: number;
            /**
             * Format: date-time
             * @description When it was added.
             */
            createdAt: string;
            /**
             * Format: date-time
             * @description When it was added, or last changed.
             */
            updatedAt: string;
        };
        /** @description One version. */
        AgentVersionBody: {
            /** @description The version. */
            version: components["schemas"]["AgentVersion"];
        };
        /** @description The versions of an agent, newest first. */
        AgentVersions: {
            /** @description The versions. */
            versions: components["schemas"]["AgentVersion"][];
        };
        /** @description A tenant's agents, by name. */
        Agents: {
            /** @description The agents. */
            agents: components["schemas"]["Agent"][];
        };
        /** @description A tenant's account in figures. */
        Analytics: {
            /** @description Its agents. */
            agents: components["schemas"]["AnalyticsAgents"];
            /** @description Its sessions. */
            sessions: components["schemas"]["AnalyticsSessions"];
            /** @description What its runs consumed. */
            usage: components["schemas"]["Stats"];
            /** @description Always empty: this server makes no evaluations. */
            evals: components["schemas"]["AnalyticsEvals"];
        };
        /** @description Agents in figures. */
        AnalyticsAgents: {
            /**
             * Format: int64
             * @description How many there are.
             */
            total: number;
        };
        /** @description Evaluations in figures. */
        AnalyticsEvals: {
            /**
             * Format: int64
             * @description Always 0.
             */
            totalRuns: number;
            /** @description Always empty. */
            byStatus: {
                [key: string]: number;
            };
        };
        /** @description Sessions in figures. */
        AnalyticsSessions: {
            /**
             * Format: int64
             * @description How many there are.
             */
            total: number;
            /** @description How many stand so; a status that none has is left out. */
            byStatus: {
                [key: string]: number;
            };
        };
        /** @description An API key, without its secret. */
        ApiKey: {
            /** @description Its id; `env` for the one in the server's environment. */
            id: string;
            /** @description What its owner calls it. */
            label: string;
            /** @description The first characters of the secret. */
            keyPrefix: string;
            /** @description When it was made; empty for the one in the environment. */
            createdAt: string;
        };
        /** @description A new API key. Its secret is shown this once. */
        ApiKeyMade: {
            /**
             * Format: uuid
             * @description Its id.
             */
            id: string;
            /** @description The secret. */
            key: string;
            /** @description Whose it is. */
            tenantId: string;
        };
        /** @description A tenant's API keys. */
        ApiKeys: {
            /** @description The keys, oldest first. */
            keys: components["schemas"]["ApiKey"][];
        };
        /** @description A file that is attached to a session. */
        Attachment: {
            /**
             * Format: uuid
             * @description Its id.
             */
            id: string;
            /** @description Whose it is. */
            tenantId: string;
            /** @description The message that it belongs to, or `unlinked`. */
            messageId: string;
            /**
             * Format: uuid
             * @description Its session.
             */
            sessionId: string;
            /** @description What it is called. */
            filename: string;
            /** @description What it is, as whoever sent it says. */
            mimeType: string;
            /**
             * Format: int64
             * @description How many bytes it has.
             */
            size: number;
            /** @description Where the agent finds it. */
            path: string;
            /**
             * Format: date-time
             * @description When it was attached.
             */
            createdAt: string;
        };
        /** @description A file that is attached to a session. */
        AttachmentBody: {
            /** @description The attachment. */
            attachment: components["schemas"]["Attachment"];
        };
        /** @description The files that are attached to a session, oldest first. */
        Attachments: {
            /** @description The attachments. */
            attachments: components["schemas"]["Attachment"][];
        };
        /**
         * @description What a person says to a question.
         * @enum {string}
         */
        Behavior: "allow" | "deny";
        /** @description A part of a prompt. What else it says is passed to the model as it is. */
        Block: {
            /** @description The text. */
            text: string;
            /** @enum {string} */
            type: "text";
        } | {
            /** @description Where it comes from: `{"type": "base64", "media_type": …, "data": …}`. */
            source: {
                [key: string]: unknown;
            };
            /** @enum {string} */
            type: "image";
        } | {
            /** @description Where it comes from. */
            source: {
                [key: string]: unknown;
            };
            /** @enum {string} */
            type: "document";
        };
        /** @description How many files differ. */
        ChangeCounts: {
            /**
             * Format: int64
             * @description So many are there that were not.
             */
            added: number;
            /**
             * Format: int64
             * @description So many are others than they were.
             */
            modified: number;
            /**
             * Format: int64
             * @description So many are gone.
             */
            removed: number;
        };
        /** @description A version, by its number or by its id. */
        CloneFrom: number | string;
        /** @description Why a session is not in the cloud as it is. */
        CloudFailure: {
            /** @description What went wrong. */
            message: string;
            /**
             * Format: date-time
             * @description When.
             */
            at: string;
        };
        /** @description A session that is in the cloud. */
        CloudSession: {
            /**
             * Format: uuid
             * @description Its id there. It keeps it when it is imported, where that is free.
             */
            sessionId: string;
            /** @description The agent it talks to. */
            agentName: string;
            /** @description What people call it. */
            title: string | null;
            /**
             * Format: int32
             * @description How many turns it has.
             */
            turns: number;
            /** @description Where it stood there, such as `ended`; null, if that is not known. */
            status: string | null;
            /**
             * Format: int64
             * @description The last entry of its log there.
             */
            seq: number;
            /**
             * Format: uuid
             * @description Its files.
             */
            snapshotId: string;
            /**
             * Format: date-time
             * @description When it was brought there.
             */
            at: string;
        };
        /** @description Sessions that are in the cloud. */
        CloudSessions: {
            /** @description The bucket, as the server was told. */
            url: string;
            /** @description Newest first. */
            sessions: components["schemas"]["CloudSession"][];
            /** @description Those of which nothing can be read: they are damaged, or of a newer version. */
            unreadable?: string[];
        };
        /** @description Text, or text, pictures and documents. */
        Content: string | components["schemas"]["Block"][];
        /** @description What an agent itself remembers. */
        ConversationReceipt: {
            /** @description `intact`, `rebuilt` from the log, `lost`, or `none`: there is nothing to remember yet. */
            native: string;
            /**
             * Format: int32
             * @description How many turns it remembers.
             */
            turns: number;
            /**
             * Format: int32
             * @description How many turns the log has.
             */
            turnsInLog: number;
        };
        /** @description A session to be made. */
        CreateSession: {
            /** @description The agent to talk to. */
            agent: string;
            /** @description The credential that its model requests are made with. */
            credentialId?: string | null;
            /** @description Further credentials: at most one for the model, and any number for other hosts. */
            credentialIds?: string[];
            /** @description Variables for tools, by name. */
            extraEnv?: {
                [key: string]: string;
            } | null;
            /** @description Another model than the agent's. */
            model?: string | null;
            /** @description MCP servers by name, beside the agent's. */
            mcpServers?: {
                [key: string]: components["schemas"]["McpServer"];
            } | null;
            /** @description What the agent is told beside its own instructions. */
            systemPrompt?: string | null;
            permissionMode?: components["schemas"]["PermissionMode"] | null;
            /**
             * Format: int64
             * @description After how long a question that nobody answers is answered with no.
             */
            permissionTimeoutMs?: number | null;
            /** @description Only these tools. */
            allowedTools?: string[] | null;
            /** @description None of these tools. */
            disallowedTools?: string[] | null;
            /** @description Beta features of the model's API. */
            betas?: string[] | null;
            /** @description Sub-agents by name. */
            subagents?: {
                [key: string]: unknown;
            } | null;
            /** @description The sub-agent to begin with. */
            initialAgent?: string | null;
            /** @description What people call it. */
            title?: string | null;
            /** @description Whatever its owner wants to remember. */
            metadata?: {
                [key: string]: string;
            } | null;
            /**
             * Format: int64
             * @description After how long without use it is paused.
             */
            idleTimeoutMs?: number | null;
            /**
             * Format: int64
             * @description After how long it ends by itself.
             */
            ttlMs?: number | null;
            /**
             * Format: double
             * @description What all its runs together may cost.
             */
            budgetUsd?: number | null;
            /**
             * Format: int64
             * @description How many tokens all its runs together may use, those from and to the cache included.
             */
            budgetTokens?: number | null;
        };
        /** @description A credential, without its secret. */
        Credential: {
            /**
             * Format: uuid
             * @description Its id.
             */
            id: string;
            /** @description Which service it is for. */
            type: components["schemas"]["CredentialType"];
            /** @description What its owner calls it. */
            label: string;
            /** @description The header that carries it, if it is for a host. */
            header?: string | null;
            /** @description The host that it is for. */
            host?: string | null;
            /** @description Always true: one that is removed is gone. */
            active: boolean;
            /** @description Why no session can use it, if none can: creating one with it is refused. */
            unusable?: string | null;
            /**
             * Format: date-time
             * @description When it was added.
             */
            createdAt: string;
            /**
             * Format: date-time
             * @description When it was last used.
             */
            lastUsedAt: string | null;
        };
        /** @description One credential. */
        CredentialBody: {
            /** @description The credential. */
            credential: components["schemas"]["Credential"];
        };
        /**
         * @description Which service a credential is for.
         * @enum {string}
         */
        CredentialType: "anthropic" | "openai" | "bedrock" | "custom";
        /** @description A tenant's credentials. */
        Credentials: {
            /** @description The credentials, oldest first. */
            credentials: components["schemas"]["Credential"][];
        };
        /** @description An answer to a question. */
        DecidePermission: {
            /** @description Whether it may be done. */
            behavior: components["schemas"]["Behavior"];
            /** @description What to do it with, instead of what the agent wanted to. With `allow` only. */
            input?: {
                [key: string]: unknown;
            } | null;
            /** @description Why not, for the agent. With `deny` only. */
            message?: string | null;
        };
        /**
         * @description An agent to be deployed: from a directory of the server's machine, from files that are sent along,
         *     or from instructions alone. One of the three.
         */
        DeployAgent: {
            /** @description Its name: letters, digits, `_` and `-`. */
            name: string;
            /** @description A directory of the server's machine. It is copied. */
            path?: string | null;
            /** @description Its files. */
            files?: components["schemas"]["AgentFile"][] | null;
            /** @description Its instructions: becomes `CLAUDE.md`. */
            systemPrompt?: string | null;
            /** @description Variables for tools, by name. */
            env?: {
                [key: string]: string;
            } | null;
        };
        /** @description Something is done, and there is nothing to tell about it. */
        Done: {
            /** @description Always true. */
            ok: boolean;
        };
        /**
         * @description How hard the model tries.
         * @enum {string}
         */
        Effort: "low" | "medium" | "high" | "xhigh" | "max";
        /** @description What a session's sandbox asked of others. */
        Egress: {
            /** @description The latest requests, newest first. */
            requests: components["schemas"]["EgressRequest"][];
            /** @description What the session has spent, as the server has counted it. */
            spent: components["schemas"]["Spent"];
        };
        /** @description A request of a sandbox. Its body, its headers and its query are not kept. */
        EgressRequest: {
            /**
             * Format: date-time
             * @description When it came.
             */
            at: string;
            /** @description What it was for: `model`, `connect` or `http`. */
            kind: string;
            /** @description Its method. */
            method: string;
            /** @description Where it was to go; `model` for the model's provider. */
            host: string;
            /** @description The path of a request to the model. */
            path: string | null;
            /**
             * Format: int32
             * @description What was answered; nothing, if nobody answered.
             */
            status: number | null;
            /** @description Why it was not passed on, if it was not: one of the error codes. */
            refusal: string | null;
            /**
             * Format: int64
             * @description How many bytes of it came.
             */
            bytesUp: number;
            /**
             * Format: int64
             * @description How many bytes were answered.
             */
            bytesDown: number;
            /**
             * Format: double
             * @description After how many milliseconds the answer began.
             */
            firstByteMs: number | null;
            /**
             * Format: double
             * @description After how many milliseconds all was over.
             */
            totalMs: number;
        };
        /** @description One entry of a session's log. */
        Event: {
            /**
             * Format: uuid
             * @description Its id, always the same.
             */
            id: string;
            /** @description Its place in event streams: the log's epoch and the sequence. */
            cursor: string;
            /**
             * Format: uuid
             * @description Of which session.
             */
            sessionId: string;
            /** @description Whose. */
            tenantId: string;
            /** @description What kind. */
            type: string;
            /** @description Its fields, as a text of JSON. */
            data: string | null;
            /**
             * Format: int64
             * @description Its place in the log.
             */
            sequence: number;
            /**
             * Format: date-time
             * @description When it happened.
             */
            createdAt: string;
        };
        /** @description A part of a session's log. */
        Events: {
            /** @description The entries, in order. */
            events: components["schemas"]["Event"][];
            /**
             * @description Whether there are more behind the last one. A list can be cut, because it is long, though fewer came than were
             *     asked for: go on `after` the last `sequence`.
             */
            hasMore: boolean;
        };
        /** @description A command to be run beside the agent. */
        ExecCommand: {
            /** @description For a shell. */
            command: string;
            /**
             * Format: int64
             * @description After how many milliseconds it is killed.
             */
            timeout?: number | null;
        };
        /** @description What became of a command. */
        ExecOutcome: {
            /**
             * Format: int32
             * @description Its exit code; 128 and the signal's number if one killed it; 1 if it took too long.
             */
            exitCode: number;
            /** @description What it printed: the beginning and the end, if it was much. */
            stdout: string;
            /**
             * @description What it complained of. A last line of ours says if a process was killed meanwhile because the sandbox
             *     ran out of memory.
             */
            stderr: string;
            /** @description Whether it was killed because it took too long. */
            timedOut: boolean;
            /**
             * Format: int64
             * @description How many bytes of output were left out.
             */
            omittedBytes: number;
        };
        /**
         * @description What became of a file.
         * @enum {string}
         */
        FileChange: "added" | "modified" | "removed";
        /** @description A file of a session, with its content. */
        FileContent: {
            /** @description Where. */
            path: string;
            /** @description The content. */
            content: string;
            /** @description Whether there are bytes in it that are no text, with U+FFFD in their place: what is written back is not what was there. */
            lossy?: boolean;
            /**
             * Format: int64
             * @description How many bytes it has.
             */
            size: number;
            /** @description Where it is. */
            source: components["schemas"]["FileSource"];
        };
        /** @description A file that is gone. */
        FileDeleted: {
            /** @description Where it was. */
            path: string;
            /** @description Always true. */
            deleted: boolean;
        };
        /** @description A file that differs. */
        FileDiff: {
            /** @description Its path in the workspace. */
            path: string;
            /** @description What became of it. */
            change: components["schemas"]["FileChange"];
            /**
             * Format: int64
             * @description How large it was, if it was there.
             */
            sizeBefore: number | null;
            /**
             * Format: int64
             * @description How large it is, if it is there.
             */
            sizeAfter: number | null;
            /** @description The lines that differ, as `patch` reads them. */
            diff?: string | null;
            omitted?: components["schemas"]["Omitted"] | null;
        };
        /** @description A file of a session. */
        FileInfo: {
            /** @description Where, relative to the workspace. In a name that is no text, what is none is `�`. */
            path: string;
            /**
             * Format: int64
             * @description How many bytes it has.
             */
            size: number;
            /**
             * Format: date-time
             * @description When it was last changed.
             */
            modifiedAt: string;
            /** @description Whether it can be run. */
            executable?: boolean;
            /** @description Only if the path is no text: the path as it has to stand in an address. */
            encodedPath?: string | null;
        };
        /**
         * @description Where the files of a session are.
         * @enum {string}
         */
        FileSource: "sandbox" | "snapshot";
        /** @description What became of a file. */
        FileWritten: {
            /** @description Its path, as it was sent. */
            path: string;
            /** @description Whether it was written. */
            written: boolean;
            /**
             * Format: int64
             * @description How many bytes it has.
             */
            size?: number | null;
            /** @description Why it was not written. */
            error?: string | null;
        };
        /** @description The files of a session. */
        Files: {
            /** @description The files, by path. */
            files: components["schemas"]["FileInfo"][];
            /**
             * @description The directories right beneath the one that was listed, as they have to stand in an address, if they were
             *     asked for.
             */
            directories?: string[];
            /** @description Where they are. */
            source: components["schemas"]["FileSource"];
            /** @description Whether some were left out: there are too many, they lie too deep, or cannot be read. */
            truncated?: boolean;
        };
        /** @description What became of each file, in the order they were sent. */
        FilesWritten: {
            /** @description One for each. */
            files: components["schemas"]["FileWritten"][];
        };
        /** @description Where a new session begins. Without anything, where the other one is now. */
        ForkSession: {
            /**
             * Format: uuid
             * @description When this snapshot was made.
             */
            snapshotId?: string | null;
            /**
             * Format: int32
             * @description At the end of this turn.
             */
            turn?: number | null;
        };
        /** @description One frame of an event stream. `docs/events.md` tells which there are. */
        Frame: {
            /** @description Its id: the log's epoch and the sequence; none, if it is not in the log. */
            id?: string;
            /** @description Its name. */
            event: string;
            /** @description Its fields, as a text of JSON on one line. */
            data: string;
        };
        /** @description How the server is. */
        Health: {
            /** @description Always `ok`: whoever cannot say so does not answer. */
            status: string;
            /** @description The release. */
            version: string;
            /**
             * Format: int64
             * @description For how many seconds it has been up.
             */
            uptime: number;
            /** @description What keeps agents from the rest of the machine. */
            isolation: string;
            /** @description What keeps the files of sandboxes within their limit: `project quotas`, or that they are counted, and why. */
            disk: string;
            /** @description Whether there is less room on the disk than `ASH_MIN_FREE_MB` says there should be. */
            diskPressure: boolean;
            /** @description Whether what happens in sessions can be recorded. It cannot while the disk is full. */
            canRecord: boolean;
            /**
             * Format: int64
             * @description How many sessions are active.
             */
            activeSessions: number;
            /**
             * Format: int64
             * @description How many sandboxes there are.
             */
            activeSandboxes: number;
            /** @description The sandboxes by what they do. */
            pool: components["schemas"]["Pool"];
            /** @description What can run agents here, the one first that runs those that do not say. */
            runtimes: components["schemas"]["RuntimeHealth"][];
            /** @description Names this process. */
            coordinatorId: string;
            /**
             * Format: int64
             * @description How many other machines run sandboxes for this one.
             */
            remoteRunners: number;
        };
        /**
         * @description What to do when a run goes on.
         * @enum {string}
         */
        IfBusy: "queue" | "reject";
        /** @description A session that was in the cloud and is one of this server now. */
        ImportedSession: {
            /** @description The session. */
            session: components["schemas"]["Session"];
            /**
             * @description What could not be read there and is missing, or was replaced. Empty, if everything was whole but for files: of
             *     those a resume says what came back.
             */
            warnings?: string[];
        };
        /** @description What to interrupt. */
        InterruptSession: {
            /**
             * Format: uuid
             * @description Which run, if not the one that goes on.
             */
            runId?: string | null;
        };
        /** @description A line of what a sandbox says about itself. */
        Log: {
            /**
             * Format: int64
             * @description Its place. It stays the same, and later lines have higher ones.
             */
            index: number;
            /** @description `stdout`, `stderr` or `system`. */
            level: string;
            /** @description The line. */
            text: string;
            /**
             * Format: date-time
             * @description When.
             */
            ts: string;
        };
        /** @description That lines are missing before the first one. */
        LogGap: {
            /**
             * Format: int64
             * @description After which one lines were asked for.
             */
            after: number;
            /**
             * Format: int64
             * @description From which number on there are some.
             */
            next: number;
            /** @description Why those before it are missing. */
            reason: components["schemas"]["LogGapReason"];
        };
        /**
         * @description Why lines are missing.
         * @enum {string}
         */
        LogGapReason: "left_out" | "other_epoch" | "beyond_end";
        /** @description What a sandbox says about itself. */
        Logs: {
            /** @description The lines, in order. */
            logs: components["schemas"]["Log"][];
            /** @description Always `sandbox`. */
            source: string;
            gap?: components["schemas"]["LogGap"] | null;
        };
        /** @description An MCP server. */
        McpServer: {
            /** @description Where it is, if it is remote. */
            url?: string | null;
            /** @description The program, if it is local. */
            command?: string | null;
            /** @description What the program is called with. */
            args?: string[] | null;
            /** @description Variables for the program. */
            env?: {
                [key: string]: string;
            } | null;
        };
        /** @description One message of a conversation. */
        Message: {
            /**
             * Format: uuid
             * @description Its id, always the same.
             */
            id: string;
            /** @description Its place in event streams: the log's epoch and the sequence. */
            cursor: string;
            /**
             * Format: uuid
             * @description Of which session.
             */
            sessionId: string;
            /** @description Whose. */
            tenantId: string;
            /** @description `user` or `assistant`. */
            role: string;
            /** @description The message, as a text of JSON. */
            content: string;
            /**
             * Format: int64
             * @description Its place in the log.
             */
            sequence: number;
            /**
             * Format: date-time
             * @description When it was said.
             */
            createdAt: string;
        };
        /** @description A part of a conversation. */
        Messages: {
            /** @description The messages, in order. */
            messages: components["schemas"]["Message"][];
            /**
             * @description Whether there are more behind the last one. A list can be cut, because it is long, though fewer came than were
             *     asked for: go on `after` the last `sequence`.
             */
            hasMore: boolean;
        };
        /** @description A version of an agent to be added. New sessions get it once it is activated. */
        NewAgentVersion: {
            /** @description What people call it. */
            name?: string | null;
            /** @description Its instructions: becomes `CLAUDE.md`. If they are not given, those of the version it is made from. */
            systemPrompt?: string | null;
            /** @description What is new in it. */
            releaseNotes?: string | null;
            /** @description The files that it knows things from. */
            knowledgeFiles?: string[] | null;
            cloneFrom?: components["schemas"]["CloneFrom"] | null;
        };
        /** @description An API key to be made. */
        NewApiKey: {
            /** @description What its owner calls it. */
            label?: string;
            /**
             * @description Whose it is, if not the caller's. Only the server's own tenant may say so; a tenant that is
             *     not there yet is made.
             */
            tenantId?: string | null;
        };
        /** @description A file to be attached to a session. */
        NewAttachment: {
            /** @description What it is called. Directories before its name are left out. */
            filename: string;
            /** @description What it is; nothing: `application/octet-stream`. */
            mimeType?: string | null;
            /** @description Its bytes, in base64. */
            content: string;
            /** @description The message that it belongs to. */
            messageId?: string | null;
        };
        /** @description A credential to be kept. */
        NewCredential: {
            /** @description Which service it is for. */
            type: components["schemas"]["CredentialType"];
            /** @description The secret. Of a `bedrock` one: JSON with `accessKeyId`, `secretAccessKey`, `region`, and `sessionToken` if there is one. */
            key: string;
            /** @description What its owner calls it. */
            label?: string | null;
            /** @description Of a `custom` one: the header that carries it. */
            header?: string | null;
            /** @description Of a `custom` one: the only host that it is sent to, with a port if that is not 443. */
            host?: string | null;
        };
        /** @description A file to be written. */
        NewFile: {
            /** @description Where, relative to `targetPath`. */
            path: string;
            /** @description The content in base64, at most 50 MB. */
            content: string;
            /** @description Whether it can be run. If it is not said, it can if the file that it replaces can. */
            executable?: boolean | null;
        };
        /** @description A prompt to be worked on when there is room. */
        NewQueueItem: {
            /** @description The agent that is to work on it. */
            agentName: string;
            /** @description What is said. */
            prompt: string;
            /**
             * Format: uuid
             * @description The session that it is for; nothing: a new one.
             */
            sessionId?: string | null;
            /**
             * Format: int32
             * @description What has more comes first.
             */
            priority?: number | null;
            /**
             * Format: int32
             * @description How often it is tried again.
             */
            maxRetries?: number | null;
        };
        /** @description A key to be made for a tenant by whoever runs the server. */
        NewTenantKey: {
            /** @description Whose it becomes. A tenant that is not there yet is made. */
            tenantId: string;
            /** @description What it is called; `platform-` and the tenant, if nobody says so. */
            label?: string | null;
        };
        /**
         * @description Why the lines of a file are not shown.
         * @enum {string}
         */
        Omitted: "binary" | "too_large";
        /** @description The shape of an answer. */
        OutputFormat: {
            /** @description What kind of shape. */
            type: components["schemas"]["OutputKind"];
            /** @description The shape, as a JSON Schema. */
            schema: Record<string, never>;
        };
        /**
         * @description What says what shape an answer has.
         * @enum {string}
         */
        OutputKind: "json_schema";
        /** @description How to pause. */
        PauseSession: {
            /** @description What becomes of a run that goes on. */
            ifRunning?: components["schemas"]["WhenRunning"];
        };
        /** @description A question that an agent asks before it does something. */
        Permission: {
            /**
             * Format: uuid
             * @description Its id.
             */
            id: string;
            /**
             * Format: uuid
             * @description The run that waits for the answer.
             */
            runId: string;
            /**
             * Format: int64
             * @description The entry of the log that asks it.
             */
            seq: number;
            /** @description What the agent wants to use. */
            tool: string;
            /** @description What for. */
            input: unknown;
            /**
             * Format: date-time
             * @description When it was asked.
             */
            askedAt: string;
            decided: components["schemas"]["Behavior"] | null;
        };
        /** @description An answer that is kept. */
        PermissionDecided: {
            /**
             * Format: uuid
             * @description The question.
             */
            id: string;
            /** @description What was said. */
            behavior: components["schemas"]["Behavior"];
        };
        /**
         * @description How a tool call is allowed.
         * @enum {string}
         */
        PermissionMode: "bypassPermissions" | "permissionsByAgent" | "default" | "acceptEdits" | "plan";
        /** @description The questions of a session that are open. */
        Permissions: {
            /** @description The questions, in the order in which they were asked. */
            permissions: components["schemas"]["Permission"][];
        };
        /** @description The sandboxes by what they do. */
        Pool: {
            /**
             * Format: int64
             * @description All of them.
             */
            total: number;
            /**
             * Format: int64
             * @description Always 0: a session at rest has no sandbox, and costs nothing.
             */
            cold: number;
            /**
             * Format: int64
             * @description Those that are starting.
             */
            warming: number;
            /**
             * Format: int64
             * @description Those that are frozen, and those that wait for a session.
             */
            warm: number;
            /**
             * Format: int64
             * @description Of those, the ones that wait for a session.
             */
            preWarmed: number;
            /**
             * Format: int64
             * @description Those that wait for a prompt.
             */
            waiting: number;
            /**
             * Format: int64
             * @description Those that work on one.
             */
            running: number;
            /**
             * Format: int32
             * @description How many there may be.
             */
            maxCapacity: number;
            /**
             * Format: int64
             * @description How often a session came back in the same sandbox.
             */
            resumeWarmHits: number;
            /**
             * Format: int64
             * @description How often a session came back in a new one.
             */
            resumeColdHits: number;
            /**
             * Format: int64
             * @description How often a session was created in a sandbox that waited for it.
             */
            preWarmHits: number;
        };
        /**
         * @description An error. `error` and `statusCode` are for everybody; `code` never changes and has a page of its
         *     own in the documentation.
         */
        Problem: {
            /** @description A sentence for a person. */
            error: string;
            /**
             * Format: int32
             * @description The HTTP status.
             */
            statusCode: number;
            /** @description A stable name for a program. */
            code: string;
            /** @description Whether the same request may succeed later. */
            retryable: boolean;
            /** @description What to quote when asking somebody about it. */
            requestId: string;
        };
        /** @description How many items stand how. */
        QueueCounts: {
            /**
             * Format: int64
             * @description Those that wait.
             */
            pending: number;
            /**
             * Format: int64
             * @description Those that are worked on.
             */
            processing: number;
            /**
             * Format: int64
             * @description Those that were done.
             */
            completed: number;
            /**
             * Format: int64
             * @description Those that could not be done.
             */
            failed: number;
            /**
             * Format: int64
             * @description Those that were withdrawn.
             */
            cancelled: number;
        };
        /** @description A prompt in the queue. */
        QueueItem: {
            /**
             * Format: uuid
             * @description Its id.
             */
            id: string;
            /** @description Whose it is. */
            tenantId: string;
            /**
             * Format: uuid
             * @description Its session, once there is one.
             */
            sessionId?: string | null;
            /** @description The agent that works on it. */
            agentName: string;
            /** @description What is said. */
            prompt: string;
            /** @description Where it stands. */
            status: components["schemas"]["QueueItemStatus"];
            /**
             * Format: int32
             * @description What has more comes first.
             */
            priority: number;
            /**
             * Format: int32
             * @description How often it was tried again.
             */
            retryCount: number;
            /**
             * Format: int32
             * @description How often it is tried again at the most.
             */
            maxRetries: number;
            /** @description What went wrong last, in a sentence. */
            error?: string | null;
            /** @description The stable name of what went wrong last. */
            errorCode?: string | null;
            /**
             * Format: uuid
             * @description The run of its latest attempt, once that was sent.
             */
            runId?: string | null;
            /** @description What the agent said last, if it was completed: at most 64 KB. */
            result?: string | null;
            /** @description Why its run ended, if it was completed. */
            stopReason?: string | null;
            /**
             * Format: date-time
             * @description When it was added.
             */
            createdAt: string;
            /**
             * Format: date-time
             * @description When it was first worked on.
             */
            startedAt?: string | null;
            /**
             * Format: date-time
             * @description When it was over.
             */
            completedAt?: string | null;
        };
        /** @description A prompt in the queue. */
        QueueItemBody: {
            /** @description The item. */
            item: components["schemas"]["QueueItem"];
        };
        /**
         * @description Where an item stands.
         * @enum {string}
         */
        QueueItemStatus: "pending" | "processing" | "completed" | "failed" | "cancelled";
        /** @description A page of the queue, newest first. */
        QueueItems: {
            /** @description The items. */
            items: components["schemas"]["QueueItem"][];
            /** @description Where the next page begins, if there is one. */
            nextCursor?: string | null;
        };
        /** @description How many items stand how. */
        QueueStats: {
            /** @description The figures. */
            stats: components["schemas"]["QueueCounts"];
        };
        /** @description Whether the server takes work. */
        Ready: {
            /** @description Always `ready`. */
            status: string;
        };
        /** @description What came back. */
        ResumeReceipt: {
            /** @description `warm`: the same sandbox. `cold`: a new one. `noop`: nothing had to be done. */
            path: string;
            /** @description Where the workspace came from. */
            source: string | null;
            /** @description What became of the workspace. */
            workspace: string;
            /** @description The snapshot it came from. */
            snapshotId: string | null;
            /**
             * Format: int64
             * @description The entry that the snapshot was made at.
             */
            snapshotSeq: number | null;
            /** @description Whether the snapshot is not the last one, because later ones are lost. Left out if it is. */
            outdated?: boolean;
            /**
             * Format: int64
             * @description How many paths of the snapshot could not be read any more, and are missing. Left out if there are none.
             */
            leftOut?: number;
            /**
             * Format: int64
             * @description How many files of the workspace are newer than the snapshot and could not be held against it, after the machine
             *     was restarted; all of them, if there was no good snapshot. Left out if there are none.
             */
            unverified?: number;
            /**
             * Format: int64
             * @description The last entry of the log when it came back.
             */
            lastSeq: number;
            /**
             * Format: int64
             * @description How many files the workspace has, if they were counted.
             */
            files: number | null;
            /**
             * Format: int64
             * @description How many bytes they have.
             */
            bytes: number | null;
            /** @description What the agent itself remembers. */
            conversation: components["schemas"]["ConversationReceipt"];
            /**
             * Format: uuid
             * @description The run that was cut, if one was.
             */
            interruptedRun: string | null;
            /**
             * Format: double
             * @description How long it took.
             */
            durationMs: number;
        };
        /** @description How to bring a session back. */
        ResumeSession: {
            /** @description Rather fail than begin with a fresh workspace. */
            requireState?: boolean;
            /** @description Begin with whatever can be had now, and be it a fresh workspace, though its files are said to be in the cloud. */
            allowFresh?: boolean;
        };
        /** @description A session that was brought back, and what of it came back. */
        Resumed: {
            /** @description The session. */
            session: components["schemas"]["Session"];
            /** @description The receipt. */
            resume: components["schemas"]["ResumeReceipt"];
        };
        /** @description Where a session goes back to: one of the first two. */
        RewindSession: {
            /**
             * Format: uuid
             * @description To when this snapshot was made.
             */
            snapshotId?: string | null;
            /**
             * Format: int32
             * @description To the end of this turn.
             */
            turn?: number | null;
            /** @description Only say what would change. */
            dryRun?: boolean;
        };
        /** @description A session that went back, and what became of its files. */
        Rewound: {
            /** @description The session. */
            session: components["schemas"]["Session"];
            /** @description What became of its files, or would. */
            changes: components["schemas"]["ChangeCounts"];
            /**
             * Format: int64
             * @description Of how many files it cannot be said that they are what they were at that point.
             */
            unverified?: number;
        };
        /** @description The execution of one prompt. */
        Run: {
            /**
             * Format: uuid
             * @description Its id.
             */
            id: string;
            /**
             * Format: uuid
             * @description Of which session.
             */
            sessionId: string;
            /** @description `queued`, `running`, `completed`, `cancelled`, `interrupted` or `failed`. */
            status: string;
            /** @description What it does or last did: `streaming_llm`, `executing_tools` or `delegating_coder`. */
            phase: string | null;
            /**
             * Format: int32
             * @description How often the model was asked.
             */
            round: number;
            /**
             * Format: int32
             * @description Its ordinal, once it has started.
             */
            turn: number | null;
            /**
             * Format: int32
             * @description The turn it continues.
             */
            parentTurn: number | null;
            /** @description Why it ended, once it has. */
            stopReason: string | null;
            error: components["schemas"]["RunError"] | null;
            /** @description What it consumed. */
            usage: components["schemas"]["Usage"];
            /**
             * Format: int64
             * @description The entry of the log that holds its prompt.
             */
            promptSeq: number;
            /**
             * Format: date-time
             * @description When its prompt was accepted.
             */
            acceptedAt: string;
            /**
             * Format: date-time
             * @description When the agent was given its prompt.
             */
            startedAt: string | null;
            /**
             * Format: date-time
             * @description When it was over.
             */
            endedAt: string | null;
        };
        /** @description One run. */
        RunBody: {
            /** @description The run. */
            run: components["schemas"]["Run"];
        };
        /** @description Why a run was cut or could not be done. */
        RunError: {
            /** @description A stable name. */
            code: string;
            /** @description A sentence for a person. */
            message: string;
        };
        /** @description The machines that run sandboxes. */
        Runners: {
            /** @description Other machines: always none. */
            runners: string[];
            /**
             * Format: int64
             * @description How many other machines there are.
             */
            count: number;
            /** @description Whether the server runs sandboxes itself: always. */
            hasLocal: boolean;
        };
        /** @description A session's runs, newest first. */
        Runs: {
            /** @description The runs. */
            runs: components["schemas"]["Run"][];
        };
        /** @description Something that can run agents. */
        RuntimeHealth: {
            /** @description What agents call it: `builtin`, `claude` or `legacy`. */
            name: string;
            /** @description Which release it is, as far as that is known. */
            version?: string | null;
            /** @description Who put it there: `server`, `installed`, `setting` or `system`. */
            source: string;
            /** @description Whether it is what it should be; null: nobody has looked since it changed. */
            verified?: boolean | null;
        };
        /** @description A message to a session. */
        SendMessage: {
            /** @description What is said. */
            content: components["schemas"]["Content"];
            /**
             * @description Tell the answer also as the model's API does: `message` events of the type `stream_event`, which are not logged
             *     and have no id. Without it text comes in pieces (`text_delta`, `thinking_delta`) alone; with `false` not even in
             *     those, but only as whole messages.
             */
            includePartialMessages?: boolean | null;
            /** @description Another model for this run. */
            model?: string | null;
            /**
             * Format: int32
             * @description How often the model may be asked.
             */
            maxTurns?: number | null;
            /**
             * Format: double
             * @description What the run may cost.
             */
            maxBudgetUsd?: number | null;
            effort?: components["schemas"]["Effort"] | null;
            thinking?: components["schemas"]["Thinking"] | null;
            outputFormat?: components["schemas"]["OutputFormat"] | null;
            permissionMode?: components["schemas"]["PermissionMode"] | null;
            /**
             * Format: int64
             * @description After how long a question of this run that nobody answers is answered with no.
             */
            permissionTimeoutMs?: number | null;
            /** @description Tools that may be used in this run; nothing: as the session says. */
            allowedTools?: string[] | null;
            /** @description Tools that may not be used in this run; nothing: as the session says. */
            disallowedTools?: string[] | null;
            /** @description Answer at once with the run's id, and do not stream. */
            detach?: boolean;
            /** @description What to do when a run goes on. */
            ifBusy?: components["schemas"]["IfBusy"];
            /** @description Bring the session back even if a person put it to rest, or it is broken. */
            wake?: boolean;
            /**
             * Format: int64
             * @description How long the run may take.
             */
            timeoutMs?: number | null;
        };
        /** @description A message that was accepted, and is worked on without anybody watching. */
        Sent: {
            /**
             * Format: uuid
             * @description Its run.
             */
            runId: string;
            /**
             * Format: int64
             * @description The entry of the log that holds it.
             */
            seq: number;
        };
        /** @description One conversation with its workspace and its log. */
        Session: {
            /**
             * Format: uuid
             * @description Its id.
             */
            id: string;
            /** @description Whose it is. */
            tenantId: string;
            /** @description The agent it talks to. */
            agentName: string;
            /**
             * Format: int32
             * @description The version of that agent, for ever.
             */
            agentVersion: number;
            /**
             * Format: uuid
             * @description Its sandbox: the same as its id. `incarnation` tells one from the next.
             */
            sandboxId: string;
            /** @description Where it stands. */
            status: components["schemas"]["SessionStatus"];
            /**
             * Format: date-time
             * @description When it was created.
             */
            createdAt: string;
            /**
             * Format: date-time
             * @description When something last happened that counts as use.
             */
            lastActiveAt: string;
            /** @description The machine it runs on, if it is another than the server's. */
            runnerId: string | null;
            /**
             * Format: uuid
             * @description The session it was forked from.
             */
            parentSessionId: string | null;
            /** @description The model it runs on, if not the agent's. */
            model: string | null;
            /** @description The options it was created with. Values of variables are not shown. */
            config: {
                [key: string]: unknown;
            };
            /** @description What people call it. */
            title: string | null;
            /** @description Whatever its owner wants to remember. */
            metadata: {
                [key: string]: string;
            };
            activity: components["schemas"]["Activity"] | null;
            /**
             * Format: int32
             * @description How many sandboxes it has had.
             */
            incarnation: number;
            /** @description Why it was paused, while it is. */
            pauseReason: string | null;
            error: components["schemas"]["SessionError"] | null;
            /**
             * Format: int64
             * @description The last entry of its log.
             */
            lastSeq: number;
            /**
             * Format: int32
             * @description Which history of the log this is: stands before the number in event ids.
             */
            logEpoch: number;
            /**
             * Format: int32
             * @description How many turns its conversation has.
             */
            turns: number;
            /**
             * Format: int32
             * @description How many prompts wait behind the running one.
             */
            queued: number;
            /**
             * Format: int32
             * @description How many permission questions of its agent wait for an answer.
             */
            openPermissions: number;
            /**
             * Format: date-time
             * @description When it ends by itself.
             */
            expiresAt: string | null;
            snapshot: components["schemas"]["SessionSnapshot"] | null;
            /** @description Whether its files may have changed since: they are being captured, or will be in a moment. */
            snapshotPending: boolean;
            snapshotError: components["schemas"]["SnapshotFailure"] | null;
            /**
             * Format: int64
             * @description The entry of the log at which the files were captured that are in the cloud.
             */
            cloudSeq: number | null;
            cloudError: components["schemas"]["CloudFailure"] | null;
            /** @description What keeps its sandbox from the rest of the machine, or would keep the one that it gets. */
            isolation: string;
        };
        /** @description One session. */
        SessionBody: {
            /** @description The session. */
            session: components["schemas"]["Session"];
        };
        /** @description What went wrong with a session. */
        SessionError: {
            /** @description A stable name. */
            code: string;
            /** @description A sentence for a person. */
            message: string;
            /**
             * Format: date-time
             * @description When.
             */
            at: string;
        };
        /** @description The last snapshot of a session. */
        SessionSnapshot: {
            /**
             * Format: uuid
             * @description Its id.
             */
            id: string;
            /**
             * Format: int64
             * @description The last entry of the log when it was made.
             */
            seq: number;
            /**
             * Format: int32
             * @description The turn that the conversation was at.
             */
            turn: number;
            /**
             * Format: date-time
             * @description When it was made.
             */
            at: string;
            /**
             * Format: int64
             * @description How many files the workspace had.
             */
            files: number;
            /**
             * Format: int64
             * @description How large they were together.
             */
            bytes: number;
        };
        /**
         * @description Where a session stands.
         * @enum {string}
         */
        SessionStatus: "starting" | "active" | "paused" | "stopped" | "ended" | "error";
        /** @description A page of sessions, newest first. */
        Sessions: {
            /** @description The sessions. */
            sessions: components["schemas"]["Session"][];
            /** @description Where the next page begins; null on the last one. */
            nextCursor: string | null;
            /**
             * Format: int64
             * @description How many there are in all, if asked for.
             */
            total?: number;
        };
        /** @description A snapshot of what a session works on. */
        Snapshot: {
            /**
             * Format: uuid
             * @description Its id.
             */
            id: string;
            /**
             * Format: int64
             * @description The last entry of the log when it was made.
             */
            seq: number;
            /**
             * Format: int32
             * @description The turn that the conversation was at.
             */
            turn: number;
            /**
             * Format: date-time
             * @description When it was made.
             */
            createdAt: string;
            /**
             * Format: int64
             * @description How many files the workspace had.
             */
            files: number;
            /**
             * Format: int64
             * @description How large they were together.
             */
            bytes: number;
            /**
             * Format: int64
             * @description How much of all that was captured was in no snapshot before.
             */
            newBytes: number;
            /**
             * Format: int64
             * @description How many files were read, or looked at, after everything was allowed to move again.
             */
            unfrozen: number;
            /**
             * Format: int64
             * @description How many files changed each time they were read, or between the moment it is of and when they were read.
             */
            unstable: number;
            /**
             * Format: int64
             * @description Of how many files it cannot be said that they are what they were at that moment: those that are `unstable`, or
             *     all, if they were captured after the machine was restarted and there was nothing to hold them against.
             */
            unverified?: number;
            /** @description Where it lies. */
            location: components["schemas"]["SnapshotLocation"];
        };
        /** @description How the files of two snapshots differ. */
        SnapshotDiff: {
            /**
             * Format: uuid
             * @description The snapshot.
             */
            snapshotId: string;
            /**
             * Format: uuid
             * @description The one that it is compared with; none, if that is an empty workspace.
             */
            against: string | null;
            /** @description How many files differ. */
            changes: components["schemas"]["ChangeCounts"];
            /** @description The files, by path. */
            files: components["schemas"]["FileDiff"][];
            /**
             * Format: int64
             * @description How many more differ than are named.
             */
            leftOut: number;
        };
        /** @description Why files were not captured. */
        SnapshotFailure: {
            /** @description What went wrong. */
            message: string;
            /**
             * Format: int32
             * @description How often it was tried since it last succeeded.
             */
            attempts: number;
            /**
             * Format: date-time
             * @description When it was tried last.
             */
            at: string;
        };
        /** @description Where a snapshot lies. */
        SnapshotLocation: {
            /** @description On the machine of the server. */
            local: boolean;
            /** @description In the cloud. */
            cloud: boolean;
        };
        /** @description A session's snapshots, newest first. */
        Snapshots: {
            /** @description The snapshots. */
            snapshots: components["schemas"]["Snapshot"][];
        };
        /** @description What a session has spent. */
        Spent: {
            /**
             * Format: double
             * @description In US dollars.
             */
            costUsd: number;
            /**
             * Format: int64
             * @description In tokens of every kind, those from and to the cache included.
             */
            tokens: number;
        };
        /** @description What runs consumed together. */
        Stats: {
            /**
             * Format: int64
             * @description Tokens sent to the model.
             */
            totalInputTokens: number;
            /**
             * Format: int64
             * @description Tokens the model wrote.
             */
            totalOutputTokens: number;
            /**
             * Format: int64
             * @description Tokens written to the prompt cache.
             */
            totalCacheCreationTokens: number;
            /**
             * Format: int64
             * @description Tokens read from the prompt cache.
             */
            totalCacheReadTokens: number;
            /**
             * Format: int64
             * @description Tools called.
             */
            totalToolCalls: number;
            /**
             * Format: int64
             * @description Prompts worked on.
             */
            totalMessages: number;
            /**
             * Format: int64
             * @description How long agents worked.
             */
            totalComputeSeconds: number;
            /**
             * Format: double
             * @description What it cost, in US dollars.
             */
            totalCostUsd: number;
        };
        /** @description Whether the model thinks before it answers. */
        Thinking: {
            /**
             * Format: int32
             * @description How many.
             */
            budgetTokens?: number | null;
            /** @enum {string} */
            type: "enabled";
        } | {
            /** @enum {string} */
            type: "adaptive";
        } | {
            /** @enum {string} */
            type: "disabled";
        };
        /** @description What to change about an agent. What is not named stays. */
        UpdateAgent: {
            /** @description Variables for tools, by name. */
            env?: {
                [key: string]: string;
            } | null;
            /** @description Free settings: merged over those that were there. */
            config?: {
                [key: string]: unknown;
            } | null;
        };
        /** @description What to change about a version. What is not named stays. */
        UpdateAgentVersion: {
            /** @description What people call it. */
            name?: string | null;
            /** @description Its instructions. Sessions keep those they were made with. */
            systemPrompt?: string | null;
            /** @description What is new in it. */
            releaseNotes?: string | null;
            /** @description The files that it knows things from. */
            knowledgeFiles?: string[] | null;
        };
        /** @description Options of a session that can be changed. Those that are not named stay. */
        UpdateConfig: {
            /** @description Another model. */
            model?: string | null;
            permissionMode?: components["schemas"]["PermissionMode"] | null;
            /**
             * Format: int64
             * @description After how long a question that nobody answers is answered with no.
             */
            permissionTimeoutMs?: number | null;
            /** @description Only these tools. */
            allowedTools?: string[] | null;
            /** @description None of these tools. */
            disallowedTools?: string[] | null;
            /** @description Beta features of the model's API. */
            betas?: string[] | null;
            /** @description Sub-agents by name. */
            subagents?: {
                [key: string]: unknown;
            } | null;
            /** @description The sub-agent to begin with. */
            initialAgent?: string | null;
            /** @description What people call it. */
            title?: string | null;
            /** @description Whatever its owner wants to remember: replaces what was there. */
            metadata?: {
                [key: string]: string;
            } | null;
        };
        /** @description A workspace to be unpacked. */
        UploadWorkspace: {
            /** @description A `tar.gz` in base64, at most 100 MB when it is decoded. */
            bundle: string;
        };
        /** @description What a run consumed. */
        Usage: {
            /**
             * Format: int64
             * @description Tokens sent to the model.
             */
            inputTokens: number;
            /**
             * Format: int64
             * @description Tokens the model wrote.
             */
            outputTokens: number;
            /**
             * Format: int64
             * @description Tokens written to the prompt cache.
             */
            cacheCreationTokens: number;
            /**
             * Format: int64
             * @description Tokens read from the prompt cache.
             */
            cacheReadTokens: number;
            /**
             * Format: int64
             * @description Tools called.
             */
            toolCalls: number;
            /**
             * Format: double
             * @description What it cost, in US dollars.
             */
            costUsd: number;
        };
        /** @description One figure of one run. */
        UsageEvent: {
            /**
             * Format: uuid
             * @description Its id, always the same for what is counted of a run.
             */
            id: string;
            /**
             * Format: uuid
             * @description Of which session.
             */
            sessionId: string;
            /** @description Of which agent. */
            agentName: string;
            /** @description Whose. */
            tenantId: string;
            /**
             * @description What is counted: `message`, `input_tokens`, `output_tokens`, `cache_creation_tokens`,
             *     `cache_read_tokens`, `tool_call` or `compute_seconds`.
             */
            eventType: string;
            /**
             * Format: int64
             * @description How many.
             */
            value: number;
            /**
             * Format: date-time
             * @description When the run was over.
             */
            createdAt: string;
        };
        /** @description What runs consumed, newest first. */
        UsageEvents: {
            /** @description The figures. */
            events: components["schemas"]["UsageEvent"][];
        };
        /** @description The sum. */
        UsageStats: {
            /** @description The figures. */
            stats: components["schemas"]["Stats"];
        };
        /** @description A version that new sessions get from now on. */
        VersionActivated: {
            /** @description Always true. */
            activated: boolean;
            /**
             * Format: int32
             * @description Which version.
             */
            versionNumber: number;
        };
        /** @description A version that is gone. */
        VersionDeleted: {
            /** @description Always true. */
            deleted: boolean;
            /**
             * Format: int32
             * @description Which version.
             */
            versionNumber: number;
        };
        /**
         * @description What becomes of a run that goes on.
         * @enum {string}
         */
        WhenRunning: "freeze" | "interrupt" | "reject";
        /** @description What became of a workspace. */
        WorkspaceUploaded: {
            /** @description What was done. */
            message: string;
            /**
             * Format: int64
             * @description How many files and links were written.
             */
            files: number;
            /**
             * Format: int64
             * @description How many bytes they have together.
             */
            bytes: number;
        };
        /** @description Files to be put into an agent. */
        WriteAgentFiles: {
            /** @description The files. One that is there is replaced. */
            files: components["schemas"]["AgentFile"][];
        };
        /** @description Files to be written: each whole or not at all. */
        WriteFiles: {
            /** @description The files, at most 100 MB together. */
            files: components["schemas"]["NewFile"][];
            /** @description The directory that their paths are relative to; the workspace, if it is not said. */
            targetPath?: string | null;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    listAgents: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The agents, by name */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Agents"];
                };
            };
        };
    };
    deployAgent: {
        parameters: {
            query?: never;
            header?: {
                /** @description Makes the request safe to repeat: it is carried out once. */
                "Idempotency-Key"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["DeployAgent"];
            };
        };
        responses: {
            /** @description The agent */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentBody"];
                };
            };
        };
    };
    getAgent: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The agent */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The agent */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentBody"];
                };
            };
        };
    };
    deleteAgent: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The agent */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is gone */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentDeleted"];
                };
            };
        };
    };
    updateAgent: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The agent */
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["UpdateAgent"];
            };
        };
        responses: {
            /** @description The agent */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentBody"];
                };
            };
        };
    };
    getAgentConfig: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The agent */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The settings */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentConfig"];
                };
            };
        };
    };
    updateAgentConfig: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The agent */
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    [key: string]: unknown;
                };
            };
        };
        responses: {
            /** @description All settings */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentConfig"];
                };
            };
        };
    };
    listAgentFiles: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The agent */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The files of its active version */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentFiles"];
                };
            };
        };
    };
    writeAgentFiles: {
        parameters: {
            query?: never;
            header?: {
                /** @description Makes the request safe to repeat: it is carried out once. */
                "Idempotency-Key"?: string;
            };
            path: {
                /** @description The agent */
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["WriteAgentFiles"];
            };
        };
        responses: {
            /** @description They are there */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentFilesWritten"];
                };
            };
        };
    };
    getAgentFile: {
        parameters: {
            query?: {
                /** @description As what it is sent: `json`, unless told otherwise. */
                format?: "json" | "raw";
            };
            header?: never;
            path: {
                /** @description The agent */
                name: string;
                /** @description The file */
                path: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The file */
            200: {
                headers: {
                    /** @description Its name, if it is sent as it is */
                    "Content-Disposition"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentFileContent"];
                    "*/*": string;
                };
            };
        };
    };
    deleteAgentFile: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The agent */
                name: string;
                /** @description The file */
                path: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is gone */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentFileDeleted"];
                };
            };
        };
    };
    listAgentVersions: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The agent */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The versions */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentVersions"];
                };
            };
        };
    };
    createAgentVersion: {
        parameters: {
            query?: never;
            header?: {
                /** @description Makes the request safe to repeat: it is carried out once. */
                "Idempotency-Key"?: string;
            };
            path: {
                /** @description The agent */
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewAgentVersion"];
            };
        };
        responses: {
            /** @description The version */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentVersionBody"];
                };
            };
        };
    };
    getAgentVersion: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The agent */
                name: string;
                /** @description The version: its number, or its id */
                version: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The version */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentVersionBody"];
                };
            };
        };
    };
    deleteAgentVersion: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The agent */
                name: string;
                /** @description The version: its number, or its id */
                version: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is gone */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["VersionDeleted"];
                };
            };
        };
    };
    updateAgentVersion: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The agent */
                name: string;
                /** @description The version: its number, or its id */
                version: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["UpdateAgentVersion"];
            };
        };
        responses: {
            /** @description The version */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentVersionBody"];
                };
            };
        };
    };
    activateAgentVersion: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The agent */
                name: string;
                /** @description The version: its number, or its id */
                version: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is active */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["VersionActivated"];
                };
            };
        };
    };
    getAnalytics: {
        parameters: {
            query?: {
                /** @description Only what runs consumed that ended at this time or later: RFC 3339, a date (its midnight in UTC), or milliseconds since 1970. */
                after?: string | number;
                /** @description Only what runs consumed that ended before this time. */
                before?: string | number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The figures */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Analytics"];
                };
            };
        };
    };
    listApiKeys: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The keys, without their secrets */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiKeys"];
                };
            };
        };
    };
    createApiKey: {
        parameters: {
            query?: never;
            header?: {
                /** @description Makes the request safe to repeat: it is carried out once. */
                "Idempotency-Key"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewApiKey"];
            };
        };
        responses: {
            /** @description The key */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiKeyMade"];
                };
            };
        };
    };
    revokeApiKey: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The key */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is gone */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Done"];
                };
            };
        };
    };
    readAttachment: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The attachment */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Its bytes, as what they were said to be */
            200: {
                headers: {
                    /** @description Its name */
                    "Content-Disposition"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "*/*": string;
                };
            };
        };
    };
    deleteAttachment: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The attachment */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is gone */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Done"];
                };
            };
        };
    };
    listCloudSessions: {
        parameters: {
            query?: {
                /** @description How many. */
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The sessions */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CloudSessions"];
                };
            };
        };
    };
    importCloudSession: {
        parameters: {
            query?: never;
            header?: {
                /** @description Makes the request safe to repeat: it is carried out once. */
                "Idempotency-Key"?: string;
            };
            path: {
                /** @description The session, as it is called in the cloud */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The session */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ImportedSession"];
                };
            };
        };
    };
    listCredentials: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The credentials, without their secrets */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Credentials"];
                };
            };
        };
    };
    createCredential: {
        parameters: {
            query?: never;
            header?: {
                /** @description Makes the request safe to repeat: it is carried out once. */
                "Idempotency-Key"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewCredential"];
            };
        };
        responses: {
            /** @description The credential, without its secret */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CredentialBody"];
                };
            };
        };
    };
    deleteCredential: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The credential */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is gone */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Done"];
                };
            };
        };
    };
    createTenantKey: {
        parameters: {
            query?: never;
            header?: {
                /** @description Makes the request safe to repeat: it is carried out once. */
                "Idempotency-Key"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewTenantKey"];
            };
        };
        responses: {
            /** @description The key */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiKeyMade"];
                };
            };
        };
    };
    listRunners: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description None but this one */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Runners"];
                };
            };
        };
    };
    listQueueItems: {
        parameters: {
            query?: {
                /** @description Only those that stand so. */
                status?: components["schemas"]["QueueItemStatus"];
                /** @description How many. */
                limit?: number;
                /** @description Where the page begins: `nextCursor` of the one before. */
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["QueueItems"];
                };
            };
        };
    };
    enqueue: {
        parameters: {
            query?: never;
            header?: {
                /** @description Makes the request safe to repeat: it is carried out once. */
                "Idempotency-Key"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewQueueItem"];
            };
        };
        responses: {
            /** @description The item */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["QueueItemBody"];
                };
            };
        };
    };
    getQueueStats: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description How many stand how */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["QueueStats"];
                };
            };
        };
    };
    getQueueItem: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The item */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The item */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["QueueItemBody"];
                };
            };
        };
    };
    cancelQueueItem: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The item */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The item, cancelled */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["QueueItemBody"];
                };
            };
        };
    };
    listSessions: {
        parameters: {
            query?: {
                /** @description Only those of this agent. */
                agent?: string;
                /** @description Only those that stand so. */
                status?: components["schemas"]["SessionStatus"];
                /** @description Only those whose id begins so. */
                idPrefix?: string;
                /** @description How many. */
                limit?: number;
                /** @description How many to leave out. */
                offset?: number;
                /** @description Where the page begins: `nextCursor` of the one before. */
                cursor?: string;
                /** @description Whether to count all of them. */
                includeTotal?: boolean;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Sessions"];
                };
            };
        };
    };
    createSession: {
        parameters: {
            query?: never;
            header?: {
                /** @description Makes the request safe to repeat: it is carried out once. */
                "Idempotency-Key"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CreateSession"];
            };
        };
        responses: {
            /** @description The session */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SessionBody"];
                };
            };
        };
    };
    importSession: {
        parameters: {
            query?: never;
            header?: {
                /** @description Makes the request safe to repeat: it is carried out once. */
                "Idempotency-Key"?: string;
            };
            path?: never;
            cookie?: never;
        };
        /** @description The bundle */
        requestBody: {
            content: {
                "application/x-tar": string;
            };
        };
        responses: {
            /** @description The session */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SessionBody"];
                };
            };
        };
    };
    getSession: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The session */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The session */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SessionBody"];
                };
            };
        };
    };
    endSession: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The session */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The session, ended */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SessionBody"];
                };
            };
        };
    };
    listAttachments: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The session */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The attachments */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Attachments"];
                };
            };
        };
    };
    attachFile: {
        parameters: {
            query?: never;
            header?: {
                /** @description Makes the request safe to repeat: it is carried out once. */
                "Idempotency-Key"?: string;
            };
            path: {
                /** @description The session */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewAttachment"];
            };
        };
        responses: {
            /** @description The attachment */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AttachmentBody"];
                };
            };
        };
    };
    configureSession: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The session */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["UpdateConfig"];
            };
        };
        responses: {
            /** @description The session */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SessionBody"];
                };
            };
        };
    };
    listEgress: {
        parameters: {
            query?: {
                /** @description How many. */
                limit?: number;
            };
            header?: never;
            path: {
                /** @description The session */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The requests, and what the session has spent */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Egress"];
                };
            };
        };
    };
    listEvents: {
        parameters: {
            query?: {
                /** @description How many. */
                limit?: number;
                /** @description Only those after this entry. */
                after?: number;
                /**
                 * @description Only those of this type; `all`: of every type; nothing: of those that the original has, `text`, `tool_start`,
                 *     `tool_result`, `reasoning`, `error`, `turn_complete`, `lifecycle` and `mcp_status`. A type that there is not has
                 *     no events. What an agent thinks in one go is one event, but for `all`, which tells the pieces.
                 */
                type?: string;
            };
            header?: never;
            path: {
                /** @description The session */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The entries, in order */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Events"];
                };
            };
        };
    };
    execCommand: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The session */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ExecCommand"];
            };
        };
        responses: {
            /** @description What became of it */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ExecOutcome"];
                };
            };
        };
    };
    exportSession: {
        parameters: {
            query?: {
                /**
                 * @description Whether every snapshot of its files that is kept is in it, and not the latest alone: then it can be forked
                 *     and rewound where it is imported.
                 */
                history?: boolean;
            };
            header?: never;
            path: {
                /** @description The session */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The bundle */
            200: {
                headers: {
                    /** @description Its name */
                    "Content-Disposition"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/x-tar": string;
                };
            };
        };
    };
    listFiles: {
        parameters: {
            query?: {
                /**
                 * @description Whether caches and temporary directories are listed too: `.cache`, `.npm`, `.pnpm-store`,
                 *     `.yarn`, `.venv`, `venv`, `.tmp` and `tmp`.
                 */
                includeHidden?: boolean;
                /** @description Whether everything is listed, also what is left out otherwise. */
                everything?: boolean;
                /** @description Only those beneath this directory, or this file alone. */
                path?: string;
                /** @description Whether the directories right beneath it are named too, also those without files. */
                directories?: boolean;
            };
            header?: never;
            path: {
                /** @description The session */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The files */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Files"];
                };
            };
        };
    };
    writeFiles: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The session */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["WriteFiles"];
            };
        };
        responses: {
            /** @description What became of each */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["FilesWritten"];
                };
            };
        };
    };
    readFile: {
        parameters: {
            query?: {
                /** @description As what it is sent. */
                format?: "raw" | "json";
            };
            header?: never;
            path: {
                /** @description The session */
                id: string;
                /** @description The file */
                path: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The file */
            200: {
                headers: {
                    /** @description Its name */
                    "Content-Disposition"?: string;
                    /** @description `sandbox` or `snapshot` */
                    "X-Ash-Source"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["FileContent"];
                    "*/*": string;
                };
            };
        };
    };
    deleteFile: {
        parameters: {
            query?: {
                /** @description Whether a directory is deleted too, with everything in it. */
                recursive?: boolean;
            };
            header?: never;
            path: {
                /** @description The session */
                id: string;
                /** @description The file */
                path: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is gone */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["FileDeleted"];
                };
            };
        };
    };
    forkSession: {
        parameters: {
            query?: never;
            header?: {
                /** @description Makes the request safe to repeat: it is carried out once. */
                "Idempotency-Key"?: string;
            };
            path: {
                /** @description The session */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["ForkSession"] | null;
            };
        };
        responses: {
            /** @description The new session, paused */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SessionBody"];
                };
            };
        };
    };
    interruptSession: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The session */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["InterruptSession"] | null;
            };
        };
        responses: {
            /** @description The run, cancelled */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RunBody"];
                };
            };
        };
    };
    listLogs: {
        parameters: {
            query?: {
                /** @description Only those after the one with this `index`. Numbers go on when the sandbox is another one. */
                after?: number;
            };
            header?: never;
            path: {
                /** @description The session */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The lines, in order */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Logs"];
                };
            };
        };
    };
    listMessages: {
        parameters: {
            query?: {
                /** @description How many. */
                limit?: number;
                /** @description Only those after this entry of the log. */
                after?: number;
            };
            header?: never;
            path: {
                /** @description The session */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The messages, in order */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Messages"];
                };
            };
        };
    };
    sendMessage: {
        parameters: {
            query?: never;
            header?: {
                /** @description Makes the request safe to repeat: it is carried out once. */
                "Idempotency-Key"?: string;
                /** @description `respond-async` answers at once. */
                Prefer?: string;
            };
            path: {
                /** @description The session */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SendMessage"];
            };
        };
        responses: {
            /** @description The run, as it happens */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": components["schemas"]["Frame"];
                };
            };
            /** @description The run, which nobody watches */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Sent"];
                };
            };
        };
    };
    pauseSession: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The session */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["PauseSession"] | null;
            };
        };
        responses: {
            /** @description The session, paused */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SessionBody"];
                };
            };
        };
    };
    listPermissions: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The session */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The questions */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Permissions"];
                };
            };
        };
    };
    decidePermission: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The session */
                id: string;
                /** @description The question */
                permission: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["DecidePermission"];
            };
        };
        responses: {
            /** @description The answer, which is kept */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PermissionDecided"];
                };
            };
        };
    };
    resumeSession: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The session */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["ResumeSession"] | null;
            };
        };
        responses: {
            /** @description The session, and what came back */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Resumed"];
                };
            };
        };
    };
    rewindSession: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The session */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RewindSession"];
            };
        };
        responses: {
            /** @description The session, and what became of its files */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Rewound"];
                };
            };
        };
    };
    listRuns: {
        parameters: {
            query?: {
                /** @description How many. */
                limit?: number;
            };
            header?: never;
            path: {
                /** @description The session */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The runs */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Runs"];
                };
            };
        };
    };
    getRun: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The session */
                id: string;
                /** @description The run */
                run: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The run */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RunBody"];
                };
            };
        };
    };
    listSnapshots: {
        parameters: {
            query?: {
                /** @description How many. */
                limit?: number;
            };
            header?: never;
            path: {
                /** @description The session */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The snapshots */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Snapshots"];
                };
            };
        };
    };
    diffSnapshots: {
        parameters: {
            query?: {
                /**
                 * @description Another snapshot of the session, `empty`, or `current` for the last one. If nothing is said, the one that it
                 *     followed: of the same turn, or of the turn before it on its branch.
                 */
                against?: string;
                /** @description Only what lies at or beneath this path of the workspace. */
                path?: string;
            };
            header?: never;
            path: {
                /** @description The session */
                id: string;
                /** @description The snapshot */
                snapshot: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description What differs */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SnapshotDiff"];
                };
            };
        };
    };
    stopSession: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The session */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The session, stopped */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SessionBody"];
                };
            };
        };
    };
    followSession: {
        parameters: {
            query?: {
                /** @description Only what comes after this: a sequence, or an event id. `Last-Event-ID` goes before it. */
                after?: string;
                /** @description When to stop; never, unless told. */
                until?: "idle";
            };
            header?: {
                /** @description The last event that was seen; an empty one says nothing. */
                "Last-Event-ID"?: string;
            };
            path: {
                /** @description The session */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The log, as it grows */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": components["schemas"]["Frame"];
                };
            };
        };
    };
    downloadWorkspace: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The session */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The files */
            200: {
                headers: {
                    /** @description Its name */
                    "Content-Disposition"?: string;
                    /** @description `sandbox` or `snapshot` */
                    "X-Ash-Source"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/gzip": string;
                };
            };
        };
    };
    uploadWorkspace: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The session */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["UploadWorkspace"];
            };
        };
        responses: {
            /** @description What was done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WorkspaceUploaded"];
                };
            };
        };
    };
    listUsage: {
        parameters: {
            query?: {
                /** @description Only of this session. */
                sessionId?: string;
                /** @description Only of this agent's sessions. */
                agentName?: string;
                /** @description Only of runs that ended at this time or later: RFC 3339, a date (its midnight in UTC), or milliseconds since 1970. */
                after?: string | number;
                /** @description Only of runs that ended before this time. */
                before?: string | number;
                /** @description How many. */
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The figures */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["UsageEvents"];
                };
            };
        };
    };
    getUsageStats: {
        parameters: {
            query?: {
                /** @description Only of this session. */
                sessionId?: string;
                /** @description Only of this agent's sessions. */
                agentName?: string;
                /** @description Only of runs that ended at this time or later: RFC 3339, a date (its midnight in UTC), or milliseconds since 1970. */
                after?: string | number;
                /** @description Only of runs that ended before this time. */
                before?: string | number;
                /** @description How many. */
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The sum */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["UsageStats"];
                };
            };
        };
    };
    getReference: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/html": string;
                };
            };
        };
    };
    getOpenapi: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The OpenAPI document */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
        };
    };
    getHealth: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Health"];
                };
            };
        };
    };
    getReadiness: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It does */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Ready"];
                };
            };
        };
    };
    getMetrics: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description In Prometheus' format */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
}
