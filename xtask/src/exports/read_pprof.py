# Reads a profile of pprof with Google's own protobuf library and prints: samples, the total of the first value, and how
# many locations have more than one line (inlined calls, loops). The schema is that of pprof's profile.proto.
import gzip
import sys

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

INT64, UINT64, BOOL, STRING, MESSAGE = 3, 4, 8, 9, 11
SCHEMA = {
    "Profile": [
        ("sample_type", 1, "ValueType", True), ("sample", 2, "Sample", True), ("mapping", 3, "Mapping", True),
        ("location", 4, "Location", True), ("function", 5, "Function", True), ("string_table", 6, STRING, True),
        ("drop_frames", 7, INT64, False), ("keep_frames", 8, INT64, False), ("time_nanos", 9, INT64, False),
        ("duration_nanos", 10, INT64, False), ("period_type", 11, "ValueType", False), ("period", 12, INT64, False),
        ("comment", 13, INT64, True), ("default_sample_type", 14, INT64, False),
    ],
    "ValueType": [("type", 1, INT64, False), ("unit", 2, INT64, False)],
    "Sample": [("location_id", 1, UINT64, True), ("value", 2, INT64, True), ("label", 3, "Label", True)],
    "Label": [("key", 1, INT64, False), ("str", 2, INT64, False), ("num", 3, INT64, False), ("num_unit", 4, INT64, False)],
    "Mapping": [
        ("id", 1, UINT64, False), ("memory_start", 2, UINT64, False), ("memory_limit", 3, UINT64, False),
        ("file_offset", 4, UINT64, False), ("filename", 5, INT64, False), ("build_id", 6, INT64, False),
        ("has_functions", 7, BOOL, False), ("has_filenames", 8, BOOL, False), ("has_line_numbers", 9, BOOL, False),
        ("has_inline_frames", 10, BOOL, False),
    ],
    "Location": [
        ("id", 1, UINT64, False), ("mapping_id", 2, UINT64, False), ("address", 3, UINT64, False),
        ("line", 4, "Line", True), ("is_folded", 5, BOOL, False),
    ],
    "Line": [("function_id", 1, UINT64, False), ("line", 2, INT64, False), ("column", 3, INT64, False)],
    "Function": [
        ("id", 1, UINT64, False), ("name", 2, INT64, False), ("system_name", 3, INT64, False),
        ("filename", 4, INT64, False), ("start_line", 5, INT64, False),
    ],
}

file = descriptor_pb2.FileDescriptorProto(name="profile.proto", package="perftools.profiles", syntax="proto3")
for name, fields in SCHEMA.items():
    message = file.message_type.add(name=name)
    for field, number, kind, repeated in fields:
        added = message.field.add(name=field, number=number, label=3 if repeated else 1)
        added.type = kind if isinstance(kind, int) else MESSAGE
        if not isinstance(kind, int):
            added.type_name = ".perftools.profiles." + kind
pool = descriptor_pool.DescriptorPool()
pool.Add(file)
Profile = message_factory.GetMessageClass(pool.FindMessageTypeByName("perftools.profiles.Profile"))
profile = Profile.FromString(gzip.open(sys.argv[1]).read())

# What pprof's own check asks for: ids that are there, and as many values as types.
functions = {function.id for function in profile.function}
mappings = {mapping.id for mapping in profile.mapping} | {0}
locations = {location.id for location in profile.location}
assert profile.string_table[0] == "" and 0 not in functions | locations
assert len(locations) == len(profile.location) and len(functions) == len(profile.function)
for location in profile.location:
    assert location.mapping_id in mappings and all(line.function_id in functions for line in location.line)
for sample in profile.sample:
    assert len(sample.value) == len(profile.sample_type) and set(sample.location_id) <= locations
total = sum(sample.value[0] for sample in profile.sample)
inlined = sum(len(location.line) > 1 for location in profile.location)
print(len(profile.sample), total, inlined)
