#include "common/net/grpc_status.h"

#include <catch2/catch.hpp>
#include <grpcpp/support/status.h>

#include "common/base/status.h"
#include "tandem/v1/types.pb.h"

namespace tandem {

TEST_CASE("Status conversion keeps every code and message both ways", "[rpc]") {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "what went wrong");
    const grpc::Status wire = ToGrpcStatus(status);
    REQUIRE(static_cast<int>(wire.error_code()) == code);
    REQUIRE(wire.error_message() == "what went wrong");
    for (const absl::Status& back : {FromGrpcStatus(wire), FromServiceStatus(wire)}) {
      REQUIRE(back.code() == status.code());
      REQUIRE(back.message() == status.message());
      REQUIRE(AnsweredByWorker(back));
      REQUIRE(Describe(back) == "what went wrong");  // of no worker
    }
  }
  REQUIRE(ToGrpcStatus(absl::OkStatus()).ok());
  REQUIRE(FromGrpcStatus(grpc::Status::OK).ok());
}

TEST_CASE("Status conversion carries who failed, when and after what", "[rpc]") {
  absl::Status status = absl::DataLossError("digest differs");
  v1::ErrorInfo info;
  info.mutable_worker()->set_role(v1::ROLE_ROLLOUT);
  info.mutable_worker()->set_rank(1);
  info.set_phase("sync");
  info.set_last_action("CommitUpdate 7");
  SetErrorInfo(status, info);
  const absl::Status back = FromGrpcStatus(ToGrpcStatus(status));
  REQUIRE(GetErrorInfo(back).has_value());
  REQUIRE(GetErrorInfo(back)->phase() == "sync");
  REQUIRE(Describe(back) == "digest differs (rollout 1, phase sync, last action: CommitUpdate 7)");
}

TEST_CASE("Status conversion carries whose failure it is", "[rpc]") {
  for (const FailureOrigin origin : {FailureOrigin::kAnotherRank, FailureOrigin::kPartner}) {
    const absl::Status status = WithOrigin(absl::AbortedError("not mine"), origin);
    REQUIRE(OriginOf(FromGrpcStatus(ToGrpcStatus(status))) == origin);
    REQUIRE(AnsweredByWorker(FromGrpcStatus(ToGrpcStatus(status))));
  }
  const absl::Status nobody = FromGrpcStatus({grpc::StatusCode::UNAVAILABLE, "connect failed"});
  REQUIRE(OriginOf(nobody) == FailureOrigin::kHere);
  REQUIRE_FALSE(AnsweredByWorker(nobody));
}

TEST_CASE("Status conversion calls a server without a thread to spare a lost peer", "[rpc]") {
  const grpc::StatusCode code = grpc::StatusCode::RESOURCE_EXHAUSTED;
  const absl::Status lost = FromGrpcStatus({code, "Server Threadpool Exhausted"});
  REQUIRE(absl::IsUnavailable(lost));
  REQUIRE(lost.message().find("limits on processes") != std::string::npos);
  REQUIRE_FALSE(AnsweredByWorker(lost));
  REQUIRE(absl::IsResourceExhausted(FromGrpcStatus({code, "the queue is full"})));
}

TEST_CASE("Status conversion calls a worker whose device is lost a lost peer", "[rpc]") {
  absl::Status status = WithDeviceLost(absl::InternalError("cudaErrorIllegalAddress"));
  SetErrorInfo(status, v1::ErrorInfo());
  const absl::Status told = FromGrpcStatus(ToGrpcStatus(status));
  REQUIRE(absl::IsUnavailable(told));
  REQUIRE_FALSE(AnsweredByWorker(told));
  REQUIRE(told.message().find("cudaErrorIllegalAddress") != std::string::npos);
}

TEST_CASE("A message that is too large over any connection breaks none", "[rpc]") {
  const grpc::Status large(grpc::StatusCode::RESOURCE_EXHAUSTED,
                           "Received message larger than max (9000000 vs. 8388608)");
  const absl::Status status = FromServiceStatus(large);
  REQUIRE(absl::IsResourceExhausted(status));
  REQUIRE(status.message() == large.error_message());
}

TEST_CASE("What gRPC makes of garbage is a broken connection to a service of the run", "[rpc]") {
  for (const grpc::StatusCode code :
       {grpc::StatusCode::UNKNOWN, grpc::StatusCode::INTERNAL, grpc::StatusCode::UNIMPLEMENTED,
        grpc::StatusCode::RESOURCE_EXHAUSTED}) {
    const grpc::Status garbage(code, "Received http2 header with status: 404");
    const absl::Status broken = FromServiceStatus(garbage);
    REQUIRE(absl::IsUnavailable(broken));
    REQUIRE(broken.message().find("the connection broke; gRPC says ") == 0);
    REQUIRE(broken.message().find("status: 404") != std::string::npos);
    REQUIRE_FALSE(AnsweredByWorker(broken));
    // Other servers may mean it.
    REQUIRE_FALSE(absl::IsUnavailable(FromGrpcStatus(garbage)));
  }
  for (const grpc::StatusCode code :
       {grpc::StatusCode::CANCELLED, grpc::StatusCode::DEADLINE_EXCEEDED,
        grpc::StatusCode::PERMISSION_DENIED, grpc::StatusCode::UNAUTHENTICATED}) {
    REQUIRE(FromServiceStatus({code, "no"}).code() == static_cast<absl::StatusCode>(code));
  }
}

TEST_CASE("Status conversion calls a removed stream a lost peer", "[rpc]") {
  const grpc::Status removed(grpc::StatusCode::UNKNOWN, "Stream removed");
  REQUIRE(absl::IsUnavailable(FromGrpcStatus(removed)));
  const grpc::Status other(grpc::StatusCode::UNKNOWN, "odd");
  REQUIRE(absl::IsUnknown(FromGrpcStatus(other)));
}

}  // namespace tandem
