#include "controller/rollouts/request_split.h"

#include <iterator>
#include <string>
#include <utility>

#include "common/base/status_macros.h"

namespace tandem {
namespace {

// Above what a message has around its arrays and texts: tags, lengths and plain numbers.
constexpr int64_t kAroundRequest = 512;
constexpr int64_t kAroundSample = 64;

// As protobuf writes an integer: 7 bits a byte.
int64_t VarintBytes(uint64_t value) {
  int64_t bytes = 1;
  for (; value >= 128; value >>= 7) ++bytes;
  return bytes;
}

template <typename T>
int64_t VarintBytes(const std::vector<T>& values) {
  int64_t bytes = 0;
  for (const T value : values) bytes += VarintBytes(static_cast<uint64_t>(int64_t{value}));
  return bytes;
}

int64_t BytesOf(const Continuation& continuation) {
  return kAroundSample + VarintBytes(continuation.tokens) + VarintBytes(continuation.versions) +
         static_cast<int64_t>(continuation.log_probs.size() * sizeof(float));
}

int64_t BytesOfAllSamples(const GroupRequest& group) {
  int64_t bytes = kAroundRequest + std::ssize(group.request_id) + VarintBytes(group.prompt);
  for (const std::string& stop : group.params.stop) bytes += kAroundSample + std::ssize(stop);
  return bytes + 10 * std::ssize(group.params.stop_token_ids);
}

}  // namespace

absl::StatusOr<std::vector<GroupRequest>> SplitRequest(GroupRequest group, int64_t max_bytes) {
  std::vector<GroupRequest> parts;
  if (group.continued.empty()) {
    parts.push_back(std::move(group));
    return parts;
  }
  const std::vector<uint64_t> sample_ids = std::exchange(group.sample_ids, {});
  std::vector<Continuation> continued = std::exchange(group.continued, {});
  const int64_t start = BytesOfAllSamples(group);
  int64_t bytes = start;
  parts.push_back(group);
  for (size_t i = 0; i < continued.size(); ++i) {
    const int64_t more = BytesOf(continued[i]);
    if (start + more > max_bytes) {
      return InvalidArgument(
          "sample {} goes on from {} tokens behind a prompt of {}: that is a request of {} bytes, "
          "and one may have {}; lower data.max_response_length, or start the sample anew",
          sample_ids[i], continued[i].tokens.size(), group.prompt.size(), start + more, max_bytes);
    }
    if (bytes + more > max_bytes) {
      parts.push_back(group);
      bytes = start;
    }
    bytes += more;
    parts.back().sample_ids.push_back(sample_ids[i]);
    parts.back().continued.push_back(std::move(continued[i]));
  }
  return parts;
}

}  // namespace tandem
