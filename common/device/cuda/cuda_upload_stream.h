// Uploads to a GPU on a stream of their own beside the work's, ordered by events.
#pragma once

#include <cstdint>
#include <memory>

#include <absl/status/statusor.h>

#include "common/device/cuda/cuda_context.h"
#include "common/device/upload_stream.h"

namespace tandem {

// For the thread of its context, whose stream the work is on. The host waits in the destructor
// alone.
class CudaUploadStream final : public UploadStream {
 public:
  // `context` outlives the stream.
  static absl::StatusOr<std::unique_ptr<UploadStream>> Create(CudaContext* context);
  ~CudaUploadStream() override;
  CudaUploadStream(const CudaUploadStream&) = delete;
  CudaUploadStream& operator=(const CudaUploadStream&) = delete;

  absl::Status Begin() override;
  absl::Status Copy(void* to, const void* from, int64_t bytes) override;
  absl::Status Join() override;

 private:
  explicit CudaUploadStream(CudaContext* context) : context_(context) {}
  absl::Status Prepare();

  CudaContext* const context_;
  CudaStream stream_ = nullptr;
  CudaEvent begun_ = nullptr;   // on the context's stream: the work before the copies is done
  CudaEvent copied_ = nullptr;  // on stream_
};

}  // namespace tandem
