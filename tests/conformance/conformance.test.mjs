// The server under test is started by test_conformance.py.
import { runConformanceTests } from "@durable-streams/server-conformance-tests";

runConformanceTests({
  baseUrl: process.env.TOWPATH_URL,
  longPollTimeoutMs: Number(process.env.TOWPATH_LONG_POLL_MS),
});
