#include "rollout_worker/generate_stream.h"

#include <utility>

#include "common/net/grpc_status.h"
#include "common/net/sample_codec.h"

namespace tandem {

std::shared_ptr<GenerateStream> GenerateStream::Make() {
  std::shared_ptr<GenerateStream> stream(new GenerateStream);
  stream->self_ = stream;
  return stream;
}

void GenerateStream::OnTokens(const TokenDelta& delta) {
  v1::GenerateEvent event;
  v1::GenerateEvent::Tokens& tokens = *event.mutable_tokens();
  tokens.set_index(static_cast<int32_t>(delta.index));
  tokens.add_tokens(delta.token);
  if (delta.log_prob) tokens.add_log_probs(*delta.log_prob);
  tokens.add_versions(delta.version);
  tokens.set_text(delta.text);
  Push(std::move(event));
}

void GenerateStream::OnFinished(const Sample& sample) {
  v1::GenerateEvent event;
  *event.mutable_finished() = ToProto(sample);
  Push(std::move(event));
}

void GenerateStream::Push(v1::GenerateEvent event) {
  const v1::GenerateEvent* first = nullptr;
  {
    std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    if (events_.size() == 1) first = &events_.front();
  }
  if (first != nullptr) StartWrite(first);
}

void GenerateStream::OnEnd(const absl::Status& status) {
  bool idle = false;
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
    status_ = ToGrpcStatus(status);
    idle = events_.empty();
  }
  // Nobody else writes or finishes: this was the engine's last call and no write is under way.
  if (idle) Finish(status_);
}

void GenerateStream::OnWriteDone(bool ok) {
  const v1::GenerateEvent* next = nullptr;
  bool finish = false;
  {
    std::lock_guard lock(mutex_);
    events_.pop_front();
    if (!ok) {
      cancelled_ = true;
      events_.clear();
    }
    if (!events_.empty()) {
      next = &events_.front();
    } else {
      finish = ended_;
    }
  }
  if (next != nullptr) StartWrite(next);
  if (finish) Finish(status_);
}

void GenerateStream::OnDone() {
  // Destroys the stream here, unless the engine still holds it.
  const std::shared_ptr<GenerateStream> last = std::move(self_);
}

}  // namespace tandem
