#include "common/net/update_codec.h"

#include "common/base/status.h"

namespace tandem {

void ToProto(const Manifest& manifest, google::protobuf::RepeatedPtrField<v1::TensorEntry>* out) {
  for (const ManifestTensor& tensor : manifest) {
    v1::TensorEntry* entry = out->Add();
    entry->set_name(tensor.name);
    entry->set_dtype(DTypeName(tensor.dtype));
    for (const int64_t dim : tensor.shape) entry->add_shape(dim);
  }
}

absl::StatusOr<Manifest> FromProto(
    const google::protobuf::RepeatedPtrField<v1::TensorEntry>& entries) {
  Manifest manifest;
  for (const v1::TensorEntry& entry : entries) {
    ManifestTensor tensor;
    tensor.name = entry.name();
    const auto dtype = ParseDType(entry.dtype());
    TANDEM_RETURN_IF_ERROR(Annotate(dtype.status(), entry.name()));
    tensor.dtype = *dtype;
    tensor.shape.assign(entry.shape().begin(), entry.shape().end());
    bool sane = tensor.shape.size() == 1 || tensor.shape.size() == 2;
    for (const int64_t dim : tensor.shape) sane = sane && dim >= 0 && dim < (int64_t{1} << 31);
    if (!sane) {
      return InvalidArgument("{} has shape {}: one or two dimensions of at most 2^31 are expected",
                             tensor.name, ShapeText(tensor.shape));
    }
    manifest.push_back(std::move(tensor));
  }
  return manifest;
}

void ToProto(const std::vector<BucketEntry>& entries,
             google::protobuf::RepeatedPtrField<v1::BucketEntry>* out) {
  for (const BucketEntry& entry : entries) {
    v1::BucketEntry* proto = out->Add();
    proto->set_tensor(entry.tensor);
    proto->set_row(entry.row);
    proto->set_rows(entry.rows);
    proto->set_offset(entry.offset);
  }
}

std::vector<BucketEntry> FromProto(
    const google::protobuf::RepeatedPtrField<v1::BucketEntry>& entries) {
  std::vector<BucketEntry> out;
  for (const v1::BucketEntry& entry : entries) {
    out.push_back({entry.tensor(), entry.row(), entry.rows(), entry.offset()});
  }
  return out;
}

void ToProto(const std::vector<Digest>& digests,
             google::protobuf::RepeatedPtrField<std::string>* out) {
  for (const Digest& digest : digests) *out->Add() = digest.Bytes();
}

absl::StatusOr<std::vector<Digest>> FromProto(
    const google::protobuf::RepeatedPtrField<std::string>& digests) {
  std::vector<Digest> out;
  for (const std::string& bytes : digests) {
    TANDEM_ASSIGN_OR_RETURN(const Digest digest, Digest::FromBytes(bytes));
    out.push_back(digest);
  }
  return out;
}

}  // namespace tandem
