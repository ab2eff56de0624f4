"""Reads messages of OTLP, JSON on standard input, by the official definitions (the package opentelemetry-proto); prints how many
metrics and spans there are. A field that there is not, or a value of another kind, is an error."""

import base64
import json
import sys

from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

both = json.load(sys.stdin)

# OTLP has ids as hexadecimal digits, where JSON of protobuf has bytes in base64.
for resource in both["traces"]["resourceSpans"]:
    for scope in resource["scopeSpans"]:
        for span in scope["spans"]:
            for key in ("traceId", "spanId"):
                span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()

metrics = ParseDict(both["metrics"], ExportMetricsServiceRequest())
traces = ParseDict(both["traces"], ExportTraceServiceRequest())

names = [metric for resource in metrics.resource_metrics for scope in resource.scope_metrics for metric in scope.metrics]
spans = [span for resource in traces.resource_spans for scope in resource.scope_spans for span in scope.spans]
for metric in names:
    points = getattr(metric, metric.WhichOneof("data")).data_points
    assert points and all(point.time_unix_nano for point in points), metric.name
    for point in points:
        if metric.WhichOneof("data") == "histogram":
            assert len(point.bucket_counts) == len(point.explicit_bounds) + 1, metric.name
            assert sum(point.bucket_counts) == point.count, metric.name
        else:
            assert point.WhichOneof("value"), metric.name
for span in spans:
    assert len(span.trace_id) == 16 and len(span.span_id) == 8
    assert span.start_time_unix_nano <= span.end_time_unix_nano
print(json.dumps({"metrics": len(names), "spans": len(spans)}))
