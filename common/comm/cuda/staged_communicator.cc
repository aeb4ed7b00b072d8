#include "common/comm/cuda/staged_communicator.h"

#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "common/comm/sum_rounds.h"
#include "common/device/cuda/cuda_api.h"

namespace tandem {
namespace {

// The first offset of each rank's piece; one more: the end.
std::vector<int64_t> Offsets(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> offsets = {0};
  for (const int64_t size : sizes) offsets.push_back(offsets.back() + size);
  return offsets;
}

// How many elements of each rank's piece lie in chunk [begin, begin + part).
std::vector<int64_t> Lengths(const std::vector<int64_t>& sizes, int64_t begin, int64_t part) {
  std::vector<int64_t> lengths;
  for (const int64_t size : sizes) lengths.push_back(std::clamp<int64_t>(size - begin, 0, part));
  return lengths;
}

int64_t MostOf(const std::vector<int64_t>& sizes) {
  return *std::max_element(sizes.begin(), sizes.end());
}

// At least one, because ranks without bytes join the collective as well.
int64_t ChunksOf(int64_t most, int64_t part) {
  return std::max<int64_t>(1, (most + part - 1) / part);
}

constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));

// The part of one tensor that a round handles for one rank.
struct Stretch {
  const ScatteredSum* sum = nullptr;
  int rank = 0;
  int64_t begin = 0;   // in the rank's piece, elements
  int64_t length = 0;  // above 0
  int64_t bytes() const { return length * kFloatBytes; }
  const float* full() const { return sum->full + PieceOffset(*sum, rank) + begin; }
  float* mine() const { return sum->mine + begin; }  // on that rank alone
};

std::vector<Stretch> StretchesOf(const SumRound& round,
                                 const std::vector<ScatteredSum>& sums,
                                 int rank) {
  std::vector<Stretch> stretches;
  for (const SumPart& part : round) {
    const ScatteredSum& sum = sums[part.sum];
    const int64_t length = LengthOn(part, sum, rank);
    if (length == 0) continue;
    stretches.push_back({&sum, rank, part.begin, length});
  }
  return stretches;
}

}  // namespace

absl::StatusOr<std::unique_ptr<StagedCommunicator>> StagedCommunicator::Create(
    std::unique_ptr<Communicator> host, const StagedOptions& options) {
  if (options.staging_bytes < 256 * host->world_size()) {
    return InvalidArgument("staging of {} bytes is too small for {} ranks: at least 256 bytes each",
                           options.staging_bytes, host->world_size());
  }
  std::unique_ptr<StagedCommunicator> made(new StagedCommunicator(std::move(host), options));
  const absl::Status prepared = made->Prepare();
  if (prepared.ok()) return made;
  made->host_->Abort(
      fmt::format("rank {} could not join: {}", made->rank(), std::string(prepared.message())));
  return prepared;
}

absl::Status StagedCommunicator::Prepare() {
  TANDEM_ASSIGN_OR_RETURN(
      stream_, CollectiveStream::Create(options_.cuda, options_.device, options_.compute));
  for (Slot& slot : slots_) {
    TANDEM_ASSIGN_OR_RETURN(slot.out, options_.cuda->AllocateHost(options_.staging_bytes));
    TANDEM_ASSIGN_OR_RETURN(slot.in, options_.cuda->AllocateHost(options_.staging_bytes));
    TANDEM_ASSIGN_OR_RETURN(slot.loaded, options_.cuda->CreateMark());
  }
  return absl::OkStatus();
}

StagedCommunicator::~StagedCommunicator() {
  if (stream_ != nullptr) (void)options_.cuda->UseDevice(options_.device);
  for (const Slot& slot : slots_) {
    if (slot.out != nullptr) (void)options_.cuda->FreeHost(slot.out);
    if (slot.in != nullptr) (void)options_.cuda->FreeHost(slot.in);
    if (slot.loaded != nullptr) (void)options_.cuda->DestroyEvent(slot.loaded);
  }
}

template <typename Done>
absl::Status StagedCommunicator::WaitFor(const Done& done) {
  const auto look = [] { return absl::OkStatus(); };
  const Instant deadline = options_.clock->Now() + options_.deadline;
  const absl::Status waited = PollUntil(*options_.clock, deadline, done, look);
  if (!absl::IsDeadlineExceeded(waited)) return waited;
  return MakeStatus(absl::StatusCode::kDeadlineExceeded,
                    "rank {} of {} waited {} for its own device to copy a collective's bytes: its "
                    "earlier work hangs or takes longer",
                    rank(), world_size(), absl::FormatDuration(options_.deadline));
}

absl::Status StagedCommunicator::Copy(void* to, const void* from, int64_t bytes) {
  if (bytes == 0 || to == from) return absl::OkStatus();
  return options_.cuda->Copy(to, from, bytes, stream_->stream());
}

absl::Status StagedCommunicator::Load(const Slot& slot, int64_t chunk, const Steps& steps) {
  TANDEM_RETURN_IF_ERROR(steps.load(slot, chunk));
  return options_.cuda->Record(slot.loaded, stream_->stream());
}

absl::Status StagedCommunicator::Carry(int64_t chunks, const Steps& steps) {
  const absl::Status carried = Carried(chunks, steps);
  // The others must not wait for a rank whose device failed.
  if (!carried.ok()) {
    host_->Abort(fmt::format("rank {}: {}", rank(), std::string(carried.message())));
  }
  return carried;
}

// A slot is loaded again only after its store in stream order, and exchanged only once loaded, so
// that no host code touches memory that a copy still uses.
absl::Status StagedCommunicator::Carried(int64_t chunks, const Steps& steps) {
  const auto slot_of = [this](int64_t chunk) -> const Slot& {
    return slots_[static_cast<size_t>(chunk % 2)];
  };
  TANDEM_RETURN_IF_ERROR(stream_->Begin());
  TANDEM_RETURN_IF_ERROR(Load(slot_of(0), 0, steps));
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const Slot& slot = slot_of(chunk);
    if (chunk + 1 < chunks) {
      TANDEM_RETURN_IF_ERROR(Load(slot_of(chunk + 1), chunk + 1, steps));
    }
    TANDEM_RETURN_IF_ERROR(WaitFor([&] { return options_.cuda->HasHappened(slot.loaded); }));
    TANDEM_RETURN_IF_ERROR(steps.exchange(slot, chunk));
    TANDEM_RETURN_IF_ERROR(steps.store(slot, chunk));
  }
  TANDEM_RETURN_IF_ERROR(stream_->End());
  return WaitFor([&] { return stream_->Finished(); });
}

absl::Status StagedCommunicator::AllGatherV(const void* mine,
                                            const std::vector<int64_t>& bytes_per_rank,
                                            void* all) {
  const auto me = static_cast<size_t>(rank());
  const std::vector<int64_t> places = Offsets(bytes_per_rank);
  const int64_t part = options_.staging_bytes / world_size() / 256 * 256;
  auto* const to = static_cast<std::byte*>(all);
  Steps steps;
  // In `in` as in `all`: one rank's bytes after the other's.
  steps.load = [&](const Slot& slot, int64_t chunk) {
    const int64_t begin = chunk * part;
    const std::vector<int64_t> lengths = Lengths(bytes_per_rank, begin, part);
    return Copy(slot.in + Offsets(lengths)[me], static_cast<const std::byte*>(mine) + begin,
                lengths[me]);
  };
  steps.exchange = [&](const Slot& slot, int64_t chunk) {
    const int64_t begin = chunk * part;
    const std::vector<int64_t> lengths = Lengths(bytes_per_rank, begin, part);
    return host_->AllGatherV(slot.in + Offsets(lengths)[me], lengths,
                             all == nullptr ? nullptr : slot.in);
  };
  steps.store = [&](const Slot& slot, int64_t chunk) {
    const int64_t begin = chunk * part;
    if (all == nullptr) return absl::OkStatus();
    const std::vector<int64_t> lengths = Lengths(bytes_per_rank, begin, part);
    const std::vector<int64_t> from = Offsets(lengths);
    for (size_t other = 0; other < lengths.size(); ++other) {
      // This rank's own bytes need not leave the device.
      const bool own = other == me;
      const void* const source =
          own ? static_cast<const std::byte*>(mine) + begin : slot.in + from[other];
      TANDEM_RETURN_IF_ERROR(Copy(to + places[other] + begin, source, lengths[other]));
    }
    return absl::OkStatus();
  };
  return Carry(ChunksOf(MostOf(bytes_per_rank), part), steps);
}

absl::Status StagedCommunicator::ReduceScatterSums(const std::vector<ScatteredSum>& sums,
                                                   Accumulate accumulate) {
  const int64_t room = options_.staging_bytes / world_size() / 256 * 256 / kFloatBytes;
  const std::vector<SumRound> rounds = RoundsOf(sums, room);
  const auto stretches = [&](int64_t chunk, int of) {
    return StretchesOf(rounds[static_cast<size_t>(chunk)], sums, of);
  };
  Steps steps;
  // In `out` one rank's stretches after the other's, in `in` this rank's.
  steps.load = [&](const Slot& slot, int64_t chunk) {
    std::byte* to = slot.out;
    for (int other = 0; other < world_size(); ++other) {
      for (const Stretch& stretch : stretches(chunk, other)) {
        TANDEM_RETURN_IF_ERROR(Copy(to, stretch.full(), stretch.bytes()));
        to += stretch.bytes();
      }
    }
    to = slot.in;
    for (const Stretch& stretch : stretches(chunk, rank())) {
      if (accumulate == Accumulate::kReplace) break;
      TANDEM_RETURN_IF_ERROR(Copy(to, stretch.mine(), stretch.bytes()));
      to += stretch.bytes();
    }
    return absl::OkStatus();
  };
  steps.exchange = [&](const Slot& slot, int64_t chunk) {
    std::vector<int64_t> lengths(static_cast<size_t>(world_size()));
    for (int other = 0; other < world_size(); ++other) {
      for (const Stretch& stretch : stretches(chunk, other)) {
        lengths[static_cast<size_t>(other)] += stretch.length;
      }
    }
    return host_->ReduceScatterSum(reinterpret_cast<const float*>(slot.out), lengths,
                                   reinterpret_cast<float*>(slot.in), accumulate);
  };
  steps.store = [&](const Slot& slot, int64_t chunk) {
    const std::byte* from = slot.in;
    for (const Stretch& stretch : stretches(chunk, rank())) {
      TANDEM_RETURN_IF_ERROR(Copy(stretch.mine(), from, stretch.bytes()));
      from += stretch.bytes();
    }
    return absl::OkStatus();
  };
  return Carry(static_cast<int64_t>(rounds.size()), steps);
}

absl::Status StagedCommunicator::Broadcast(void* data, int64_t bytes, int root) {
  auto* const at = static_cast<std::byte*>(data);
  const auto length = [&](int64_t begin) {
    return std::clamp<int64_t>(bytes - begin, 0, options_.staging_bytes);
  };
  Steps steps;
  steps.load = [&](const Slot& slot, int64_t chunk) {
    const int64_t begin = chunk * options_.staging_bytes;
    return rank() == root ? Copy(slot.in, at + begin, length(begin)) : absl::OkStatus();
  };
  steps.exchange = [&](const Slot& slot, int64_t chunk) {
    return host_->Broadcast(slot.in, length(chunk * options_.staging_bytes), root);
  };
  steps.store = [&](const Slot& slot, int64_t chunk) {
    const int64_t begin = chunk * options_.staging_bytes;
    return rank() == root ? absl::OkStatus() : Copy(at + begin, slot.in, length(begin));
  };
  return Carry(ChunksOf(bytes, options_.staging_bytes), steps);
}

}  // namespace tandem
