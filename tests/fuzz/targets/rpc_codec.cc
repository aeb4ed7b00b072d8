// Every message of every service through the decoder of the wire format (the input as it is) and,
// made of the input field by field, through the codecs of samples, parameters and ledgers and back.
#include <memory>
#include <string>
#include <vector>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/dynamic_message.h>

#include "common/net/worker_codec.h"
#include "tandem/v1/controller.pb.h"
#include "tandem/v1/reward.pb.h"
#include "tandem/v1/rollout.pb.h"
#include "tandem/v1/trainer.pb.h"
#include "tandem/v1/types.pb.h"
#include "tests/fuzz/message_builder.h"
#include "tests/fuzz/target.h"

namespace tandem::fuzz {
namespace {

// Requests and responses of all services.
std::vector<const google::protobuf::Message*> RpcMessages() {
  std::vector<const google::protobuf::Message*> messages;
  for (const google::protobuf::FileDescriptor* file :
       {v1::RegisterRequest::descriptor()->file(), v1::GenerateRequest::descriptor()->file(),
        v1::TrainerResetRequest::descriptor()->file(), v1::ScoreRequest::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        const google::protobuf::MethodDescriptor* method = file->service(s)->method(m);
        for (const auto* type : {method->input_type(), method->output_type()}) {
          messages.push_back(
              google::protobuf::MessageFactory::generated_factory()->GetPrototype(type));
        }
      }
    }
  }
  return messages;
}

// What is decoded and encoded again is decoded to the same.
template <typename Proto>
void ThereAndBack(ByteSource source) {
  const auto proto = Made<Proto>(source);
  const auto once = ToProto(FromProto(proto)).SerializeAsString();
  Proto again;
  if (!again.ParseFromString(once)) __builtin_trap();
  if (ToProto(FromProto(again)).SerializeAsString() != once) __builtin_trap();
}

}  // namespace
}  // namespace tandem::fuzz

TANDEM_FUZZ_TARGET(rpc_codec) {
  using namespace tandem;        // NOLINT
  using namespace tandem::fuzz;  // NOLINT
  if (input.empty()) return;
  static const auto* const messages =
      new std::vector<const google::protobuf::Message*>(RpcMessages());
  const google::protobuf::Message* prototype =
      (*messages)[static_cast<uint8_t>(input[0]) % messages->size()];
  const std::unique_ptr<google::protobuf::Message> wire(prototype->New());
  if (wire->ParseFromArray(input.data() + 1, static_cast<int>(input.size()) - 1)) {
    (void)wire->ShortDebugString();
  }
  const ByteSource source(input.substr(1));
  switch (static_cast<uint8_t>(input[0]) % 6) {
    case 0:
      return ThereAndBack<v1::Sample>(source);
    case 1:
      return ThereAndBack<v1::SamplingParams>(source);
    case 2:
      return ThereAndBack<v1::Ledger>(source);
    case 3:
      return ThereAndBack<v1::PhaseReport>(source);
    case 4:
      return ThereAndBack<v1::Continuation>(source);
    default:
      return ThereAndBack<v1::Segment>(source);
  }
}
