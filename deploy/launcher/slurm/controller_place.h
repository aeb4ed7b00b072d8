// Where the controller of a job listens, and with which certificates.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace tandem {

// An address of this host that `other` reaches, which is another host's name: "10.0.0.7:24117". The
// port is free, and below those that the kernel hands out by itself, so that it is free again for a
// controller that is started again. `interface`: the address is this network interface's; empty:
// that of the route to `other`. `seed` makes jobs of one host look in different places.
// InvalidArgument: the name is not known, there is no route or no such interface.
// ResourceExhausted: no port is free.
absl::StatusOr<std::string> ControllerAddressFor(const std::string& other,
                                                 const std::string& interface,
                                                 int seed);

// Makes an authority of this launch alone and the certificates of its processes in `dir`, which is
// emptied before: of the controller at `address`, of agents, trainers and rollouts on `nodes`, and
// of an operator for tandemctl. The authority's key is not kept. Errors as IssueCertificate.
absl::Status MakeJobCertificates(const std::string& dir,
                                 const std::string& address,
                                 const std::vector<std::string>& nodes,
                                 absl::Time now);

}  // namespace tandem
