// Converts manifests, bucket entries and digests to protobuf and back.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <google/protobuf/repeated_ptr_field.h>

#include "common/weights/digest.h"
#include "common/weights/manifest.h"
#include "tandem/v1/rollout.pb.h"

namespace tandem {

void ToProto(const Manifest& manifest, google::protobuf::RepeatedPtrField<v1::TensorEntry>* out);
// InvalidArgument: unknown dtype, a shape that has not one or two dimensions, a negative dimension.
absl::StatusOr<Manifest> FromProto(
    const google::protobuf::RepeatedPtrField<v1::TensorEntry>& entries);

void ToProto(const std::vector<BucketEntry>& entries,
             google::protobuf::RepeatedPtrField<v1::BucketEntry>* out);
std::vector<BucketEntry> FromProto(
    const google::protobuf::RepeatedPtrField<v1::BucketEntry>& entries);

void ToProto(const std::vector<Digest>& digests,
             google::protobuf::RepeatedPtrField<std::string>* out);
// InvalidArgument: a digest that has not 16 bytes.
absl::StatusOr<std::vector<Digest>> FromProto(
    const google::protobuf::RepeatedPtrField<std::string>& digests);

}  // namespace tandem
