package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
)

// Audit shapes the audit log.
type Audit struct {
	Enabled  bool     `yaml:"enabled" json:"enabled" jsonschema:"description=Record what happens on the host in root/audit"`
	Required bool     `yaml:"required" json:"required" jsonschema:"description=Nothing runs whose record cannot be written"`
	MaxBytes Size     `yaml:"max_bytes" json:"max_bytes" jsonschema:"description=Bytes that are kept; the oldest segments are removed; 0 keeps all"`
	MaxAge   Duration `yaml:"max_age" json:"max_age" jsonschema:"description=A full segment is removed so long after its last record; 0 never"`
	Export   []Export `yaml:"export" json:"export" jsonschema:"description=Receivers that get each record\\, too"`
}

// Export is a receiver of the audit log.
type Export struct {
	To       string `yaml:"to" json:"to" jsonschema:"enum=tls,enum=tcp,enum=unix,enum=journald"`
	Address  string `yaml:"address" json:"address" jsonschema:"description=HOST:PORT\\, for unix and journald the path of a socket,example=logs.example.com:6514"`
	CA       string `yaml:"ca" json:"ca" jsonschema:"description=For tls: file with the certificates that sign the receiver's; empty takes the host's"`
	Facility string `yaml:"facility" json:"facility" jsonschema:"description=Facility of the syslog messages,example=local3"`
}

// facilities are those of syslog(3) that may be of use, with their numbers.
var facilities = map[string]int{
	"daemon": 3, "auth": 4, "authpriv": 10, "local0": 16, "local1": 17, "local2": 18, "local3": 19, "local4": 20, "local5": 21, "local6": 22, "local7": 23,
}

// FacilityNumber returns the number of the facility (RFC 5424, section 6.2.1); by
// default that of authpriv.
func (e Export) FacilityNumber() int { return facilities[cmp.Or(e.Facility, "authpriv")] }

func (e Export) validate(key string, airGapped bool) error {
	local := e.To == "unix" || e.To == "journald"
	var errs []error
	if e.To == "udp" {
		return fmt.Errorf("%s.to: udp loses records: use tls, tcp, unix or journald", key)
	}
	if e.CA != "" && e.To != "tls" {
		errs = append(errs, fmt.Errorf("%s.ca: only tls has certificates", key))
	} else if e.CA != "" {
		errs = append(errs, absolute(key+".ca", e.CA))
	}
	if e.Facility != "" && e.To == "journald" {
		errs = append(errs, fmt.Errorf("%s.facility: only syslog has one", key))
	} else if e.Facility != "" {
		errs = append(errs, oneOf(key+".facility", e.Facility, slices.Sorted(maps.Keys(facilities))...))
	}
	errs = append(errs, oneOf(key+".to", e.To, "tls", "tcp", "unix", "journald"))
	switch {
	case e.To == "journald" && e.Address == "":
	case local:
		errs = append(errs, absolute(key+".address", e.Address))
		if len(e.Address) > maxSocketPath {
			errs = append(errs, fmt.Errorf("%s.address: %q is longer than %d bytes", key, e.Address, maxSocketPath))
		}
	default:
		errs = append(errs, e.validateAddress(key+".address", airGapped))
	}
	return errors.Join(errs...)
}

func (e Export) validateAddress(key string, airGapped bool) error {
	host, port, err := net.SplitHostPort(e.Address)
	if n, portErr := strconv.ParseUint(port, 10, 16); err != nil || host == "" || portErr != nil || n == 0 {
		return fmt.Errorf("%s: %q is no HOST:PORT, such as logs.example.com:6514", key, e.Address)
	}
	a, err := netip.ParseAddr(host)
	loopback := err == nil && a.IsLoopback()
	switch {
	case e.To == "tcp" && !loopback:
		return fmt.Errorf("%s: %q is not encrypted: use tls, or an address of the loopback interface", key, e.Address)
	case airGapped && !loopback:
		return fmt.Errorf("%s: %q leaves the host, which air_gapped forbids", key, e.Address)
	}
	return nil
}

// minAudit leaves room for the segment that is written and a full one.
const minAudit = 256 << 20

func defaultAudit() Audit { return Audit{Enabled: true, MaxBytes: 8 << 30} }

// AuditDir is the directory of the audit log.
func (c *Config) AuditDir() string { return filepath.Join(c.Root, "audit") }

func (c *Config) validateAudit() error {
	var errs []error
	a := c.Audit
	if a.Required && !a.Enabled {
		errs = append(errs, errors.New("audit.required needs audit.enabled"))
	}
	if a.MaxBytes != 0 && a.MaxBytes < minAudit {
		errs = append(errs, fmt.Errorf("audit.max_bytes: %d is below %d", a.MaxBytes, minAudit))
	}
	if a.MaxAge < 0 {
		errs = append(errs, errors.New("audit.max_age must not be negative"))
	}
	if len(a.Export) > 0 && !a.Enabled {
		errs = append(errs, errors.New("audit.export needs audit.enabled"))
	}
	seen := map[Export]bool{}
	for i, e := range a.Export {
		key, place := fmt.Sprintf("audit.export[%d]", i), Export{To: e.To, Address: e.Address}
		if seen[place] {
			errs = append(errs, fmt.Errorf("%s: %s %q is there twice", key, e.To, e.Address))
		}
		seen[place] = true
		errs = append(errs, e.validate(key, c.AirGapped))
	}
	return errors.Join(errs...)
}
