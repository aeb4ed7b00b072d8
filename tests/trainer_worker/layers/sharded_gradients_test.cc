// Sums of gradients over ranks with an emulated GPU each, whose streams work at once or as late as
// they may: what a rank waits for, and what it overlaps.
#include "trainer_worker/layers/sharded_gradients.h"

#include <algorithm>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "common/base/status.h"
#include "common/comm/cuda/device_group.h"
#include "common/device/cuda/cuda_device.h"
#include "common/weights/cuda/cuda_shard_ops.h"
#include "tests/common/comm/cuda/fake_nccl.h"
#include "tests/emulator/emulated_cuda.h"
#include "tests/support/patience.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"
#include "tests/support/tiny_model.h"

namespace tandem {
namespace {

using testing::CountOf;
using testing::FakeNccl;
using Calls = std::vector<std::string>;

constexpr int kRanks = 2;
constexpr int kLayers = 5;
constexpr int64_t kElement = sizeof(float);

// What rank `rank` adds to an element of a group's gradients in a micro-batch.
float Gradient(int rank, int batch, int layer, int64_t i) {
  return static_cast<float>((rank * 7919 + batch * 611 + layer * 31 + i * 104729) % 10007) *
         1.37e-3f;
}

// Rows that two ranks do not share equally.
testing::TinyModelOptions ScatteredModel() {
  return {.vocab_size = 289, .hidden_size = 24, .num_layers = kLayers, .intermediate_size = 33};
}

struct Trainee {
  Trainee(int rank, const std::string& rendezvous, FakeNccl* nccl, uint64_t late_streams)
      : cuda({.devices = kRanks, .late_streams = late_streams}),
        layout(WeightLayout::Build(
            testing::TinyModelSpec(ScatteredModel()), DType::kBFloat16, WeightFormat::kRowMajor)),
        plan(&layout, rank, kRanks),
        device(CudaContext::Create(&cuda, rank).value()) {
    DeviceGroupOptions options;
    options.group.rank = rank;
    options.group.world_size = kRanks;
    options.group.rendezvous = rendezvous;
    options.group.deadline = testing::kPatience;
    options.cuda = &cuda;
    options.device = rank;
    options.compute = device.context().stream();
    options.nccl = nccl;
    group = JoinDeviceGroup(options).value();
    communicator = std::make_unique<OrderedCommunicator>(group.get());
    ops = CreateCudaShardOps(&device.context()).value();
    shard = ParameterShard::Create(&plan, {}, {&device, ops.get()}, &ledger).value();
    gradients = ShardedGradients::Create(shard.get(), communicator.get(), &ledger).value();
  }

  absl::Status Begin() {
    TANDEM_RETURN_IF_ERROR(shard->ZeroGradients());
    return gradients->Begin();
  }
  // Computes a group's gradients, some time.
  absl::Status Compute(int batch, int layer) {
    TANDEM_ASSIGN_OR_RETURN(float* const buffer, gradients->Group(layer));
    std::vector<float> values;
    for (int64_t i = 0; i < layout.group_elements(layer); ++i) {
      values.push_back(Gradient(group->rank(), batch, layer, i));
    }
    device.Copy(buffer, values.data(), std::ssize(values) * kElement);
    return absl::OkStatus();
  }
  absl::Status MicroBatch(int batch) {
    for (int layer = kLayers - 1; layer >= 0; --layer) {
      TANDEM_RETURN_IF_ERROR(Compute(batch, layer));
      TANDEM_RETURN_IF_ERROR(gradients->Reduce(layer));
    }
    return absl::OkStatus();
  }
  // Compares the shard with the sums, of one micro-batch for the global group.
  absl::Status Check(int batches) {
    std::vector<float> got(static_cast<size_t>(shard->elements()));
    device.Copy(got.data(), shard->gradients(), shard->elements() * kElement);
    TANDEM_RETURN_IF_ERROR(device.Synchronize());
    for (size_t tensor = 0; tensor < plan.tensors().size(); ++tensor) {
      const TensorPlace& place = *plan.tensors()[tensor];
      const ShardPlan::Piece& mine = plan.mine(tensor);
      for (int64_t i = 0; i < mine.elements; ++i) {
        const int64_t at = place.gradient_offset + mine.row * place.cols() + i;
        float want = 0;
        for (int batch = place.layer < 0 ? batches - 1 : 0; batch < batches; ++batch) {
          want += Gradient(0, batch, place.layer, at) + Gradient(1, batch, place.layer, at);
        }
        const float value = got[static_cast<size_t>(mine.offset + i)];
        if (value != want) return Internal("{} [{}]: {}, not {}", place.name, i, value, want);
      }
    }
    return absl::OkStatus();
  }

  emulator::EmulatedCuda cuda;
  Ledger ledger;
  WeightLayout layout;
  ShardPlan plan;
  CudaDevice device;
  std::unique_ptr<Communicator> group;
  std::unique_ptr<ShardOps> ops;
  std::unique_ptr<ParameterShard> shard;
  std::unique_ptr<ShardedGradients> gradients;
  std::unique_ptr<OrderedCommunicator> communicator;  // ends first, as in a session
};

// `body` on two ranks at once; through pinned memory without `nccl`.
std::vector<absl::Status> OnTwoRanks(FakeNccl* nccl,
                                     const std::function<absl::Status(Trainee&)>& body,
                                     uint64_t late_streams = ~uint64_t{0}) {
  const testing::TempDir dir;
  std::vector<absl::Status> results(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      Trainee trainee(rank, (dir.path() / "group.sock").string(), nccl, late_streams);
      results[static_cast<size_t>(rank)] = body(trainee);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

void RequireOk(const std::vector<absl::Status>& results) {
  for (const absl::Status& status : results) {
    INFO(status.ToString());
    REQUIRE(status.ok());
  }
}

}  // namespace

TEST_CASE("GPUs sum gradients while the next layer computes, and have them whole at the end",
          "[trainer][cuda]") {
  // None, the layers' stream, that of the collectives, both: each may be ahead of the other.
  const uint64_t late_streams = GENERATE(0, 1, 2, 3);
  const auto train = [](Trainee& rank) -> absl::Status {
    for (int mini_batch = 0; mini_batch < 2; ++mini_batch) {
      TANDEM_RETURN_IF_ERROR(rank.Begin());
      for (int batch = 0; batch < 3; ++batch) {
        TANDEM_RETURN_IF_ERROR(rank.MicroBatch(batch));
        TANDEM_RETURN_IF_ERROR(rank.Compute(batch, -1));
      }
      TANDEM_RETURN_IF_ERROR(rank.gradients->Finish());
      TANDEM_RETURN_IF_ERROR(rank.Check(3));
    }
    return absl::OkStatus();
  };
  FakeNccl nccl;
  for (FakeNccl* const way : {&nccl, static_cast<FakeNccl*>(nullptr)}) {
    INFO("late streams " << late_streams << (way == nullptr ? ", staged" : ", NCCL"));
    RequireOk(OnTwoRanks(way, train, late_streams));
  }
}

TEST_CASE("A layer's gradients are one collective and one wait on a GPU", "[trainer][cuda]") {
  FakeNccl nccl;
  RequireOk(OnTwoRanks(&nccl, [](Trainee& rank) -> absl::Status {
    TANDEM_RETURN_IF_ERROR(rank.Begin());
    TANDEM_RETURN_IF_ERROR(rank.group->Barrier());
    rank.cuda.ForgetCalls();
    TANDEM_RETURN_IF_ERROR(rank.MicroBatch(0));
    TANDEM_RETURN_IF_ERROR(rank.communicator->Barrier());  // all is done
    const Calls calls = rank.cuda.calls();
    // Per layer: the mark, that the collective is reached and that it is done.
    if (CountOf(calls, "Record") != 3 * kLayers) return Internal("records");
    if (CountOf(calls, "WaitEvent") != kLayers) return Internal("waits of the stream");
    if (CountOf(calls, "Synchronize") != 0) return Internal("waits of the host");
    return absl::OkStatus();
  }));
  const Calls calls = nccl.calls();
  const int64_t tensors = 9;  // of a layer
  REQUIRE(CountOf(calls, "Reduce") == kRanks * kLayers);
  REQUIRE(CountOf(calls, "sum for all") + CountOf(calls, "sum for one") >=
          kRanks * kLayers * tensors);
}

TEST_CASE("A rank computes the next layer while another has not come to sum the last one",
          "[trainer][cuda]") {
  FakeNccl nccl;
  for (FakeNccl* const way : {&nccl, static_cast<FakeNccl*>(nullptr)}) {
    std::promise<void> ahead;
    const std::shared_future<void> is_ahead = ahead.get_future().share();
    RequireOk(OnTwoRanks(way, [&](Trainee& rank) -> absl::Status {
      TANDEM_RETURN_IF_ERROR(rank.Begin());
      const int last = kLayers - 1;
      TANDEM_RETURN_IF_ERROR(rank.Compute(0, last));
      if (rank.group->rank() == 1) is_ahead.wait();
      TANDEM_RETURN_IF_ERROR(rank.gradients->Reduce(last));
      const absl::Status next = rank.Compute(0, last - 1);
      if (rank.group->rank() == 0) ahead.set_value();
      TANDEM_RETURN_IF_ERROR(next);
      TANDEM_RETURN_IF_ERROR(rank.gradients->Reduce(last - 1));
      for (int layer = last - 2; layer >= 0; --layer) {
        TANDEM_RETURN_IF_ERROR(rank.Compute(0, layer));
        TANDEM_RETURN_IF_ERROR(rank.gradients->Reduce(layer));
      }
      TANDEM_RETURN_IF_ERROR(rank.Compute(0, -1));
      TANDEM_RETURN_IF_ERROR(rank.gradients->Finish());
      return rank.Check(1);
    }));
  }
}

TEST_CASE("A sum that fails is told by the layer that needs its buffer, by Finish, and ends there",
          "[trainer][cuda]") {
  const bool finishes = GENERATE(false, true);
  FakeNccl nccl;
  for (FakeNccl* const way : {&nccl, static_cast<FakeNccl*>(nullptr)}) {
    const auto results = OnTwoRanks(way, [finishes](Trainee& rank) -> absl::Status {
      TANDEM_RETURN_IF_ERROR(rank.Begin());
      TANDEM_RETURN_IF_ERROR(rank.group->Barrier());
      if (rank.group->rank() == 1) {
        rank.group->Abort("the controller forms a new group");
        return rank.group->Barrier();
      }
      TANDEM_RETURN_IF_ERROR(rank.Compute(0, 2));
      TANDEM_RETURN_IF_ERROR(rank.gradients->Reduce(2));
      const absl::Status told = finishes ? rank.gradients->Finish() : rank.Compute(0, 0);
      // What a mini-batch that failed has left does not hold up the next.
      TANDEM_RETURN_IF_ERROR(rank.Begin());
      TANDEM_RETURN_IF_ERROR(rank.Compute(0, 1));
      TANDEM_RETURN_IF_ERROR(rank.gradients->Release());
      return told;
    });
    for (const absl::Status& status : results) {
      INFO(status.ToString());
      REQUIRE(absl::IsAborted(status));
      REQUIRE(std::string(status.message()).find("new group") != std::string::npos);
    }
  }
}

}  // namespace tandem
