// `tandemctl certs`: certificates for mutual TLS, made without a controller.
#pragma once

#include <ostream>

#include <CLI/CLI.hpp>
#include <absl/status/status.h>

#include "common/tcp/certificate_folder.h"

namespace tandem {

// Makes the authority and says what comes next. Errors as MakeAuthorityFolder.
absl::Status CertsInitCommand(const AuthorityOptions& options, std::ostream& out);

// Makes one certificate and prints its files, identities and date. Errors as IssueCertificate.
absl::Status CertsIssueCommand(const IssueOptions& options, std::ostream& out);

// The command lines of the two. `options` must outlive the command.
void AddCertsInitOptions(CLI::App& init, AuthorityOptions& options);
void AddCertsIssueOptions(CLI::App& issue, IssueOptions& options);

}  // namespace tandem
