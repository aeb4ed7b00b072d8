#include "common/weights/cuda/await_partner.h"

#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/device/cuda/poll.h"

namespace tandem {

absl::Status AwaitPartner(CudaApi& api,
                          CudaEvent event,
                          const PairLink& link,
                          const PartnerWork& work) {
  Clock& clock = RealClock();
  const auto happened = [&] { return api.HasHappened(event); };
  const auto look = [&] {
    return link.closed() ? absl::UnavailableError("no answer") : absl::OkStatus();
  };
  const absl::Status waited = PollUntil(clock, clock.Now() + link.timeout, happened, look);
  if (waited.ok()) return waited;
  if (link.closed()) {
    return MakeStatus(absl::StatusCode::kUnavailable,
                      "the {} died before its GPU {} ({}): its log has the reason, and {}",
                      work.partner, work.what, std::string(waited.message()), work.remedy);
  }
  if (!absl::IsDeadlineExceeded(waited)) {
    return Annotate(waited,
                    fmt::format("waiting until the {}'s GPU has {}", work.partner, work.what));
  }
  return MakeStatus(
      absl::StatusCode::kDeadlineExceeded,
      "the {}'s GPU has not {} within {}: look at its log, and at nvidia-smi for work "
      "that hangs",
      work.partner, work.what, absl::FormatDuration(link.timeout));
}

}  // namespace tandem
