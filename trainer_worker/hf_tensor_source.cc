#include "trainer_worker/hf_tensor_source.h"

#include "common/base/status_macros.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<HfTensorSource>> HfTensorSource::Open(const std::string& model_dir,
                                                                     const ModelSpec& spec,
                                                                     DType dtype) {
  auto source = std::make_unique<HfTensorSource>();
  TANDEM_ASSIGN_OR_RETURN(source->checkpoint_, HfCheckpoint::Open(model_dir, spec));
  source->dtype_ = dtype;
  return source;
}

absl::StatusOr<const void*> HfTensorSource::Gather(const TensorPlace& place) {
  buffer_.resize(static_cast<size_t>(NumElements(place.shape)) * DTypeBytes(dtype_));
  TANDEM_RETURN_IF_ERROR(
      checkpoint_->ReadRows(place.name, 0, place.rows(), dtype_, buffer_.data()));
  return buffer_.data();
}

}  // namespace tandem
