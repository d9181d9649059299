package policy

// The types below are the file format of a policy and of a ceiling. They are
// private: what crosses the package's border is a [Document] or a contract. A
// nil pointer, list or map is a key that is not there; an empty one is none.

// policyFile is `.github/countersign.yml`.
type policyFile struct {
	Version   int                                 `yaml:"version" jsonschema:"required,enum=1" jsonschema_description:"format of this file; always 1"`
	Rev       string                              `yaml:"rev" jsonschema_description:"a name for this revision of the policy, for people and records"`
	Default   string                              `yaml:"default" jsonschema_description:"profile of a local run, and of push, dispatch and schedule, when no rule matches"`
	Profiles  map[string]profile                  `yaml:"profiles" jsonschema:"required" jsonschema_description:"what a run may do, by name"`
	Rules     []rule                              `yaml:"rules" jsonschema_description:"which event, label and person choose which profile"`
	Promotion map[promotionKind]promotionApproval `yaml:"promotion" jsonschema_description:"what a run may ask for beyond its profile, and who decides"`
}

// ceilingFile is an owner's maximum for all policies.
type ceilingFile struct {
	Version  int                       `yaml:"version" jsonschema:"required,enum=1" jsonschema_description:"format of this file; always 1"`
	Rev      string                    `yaml:"rev" jsonschema_description:"a name for this revision of the ceiling, for people and records"`
	Default  string                    `yaml:"default" jsonschema_description:"the maximum for a policy's profile that has no namesake here"`
	Profiles map[string]ceilingProfile `yaml:"profiles" jsonschema_description:"maxima, by the name of the policy's profile"`

	ProtectedRefs  []string        `yaml:"protected_refs" jsonschema_description:"branches besides the default one whose policy is believed"`
	Promotable     []promotionKind `yaml:"promotable" jsonschema_description:"what may be asked for at all"`
	Private        privateCap      `yaml:"private" jsonschema_description:"true: rules may reach addresses that are not public; a list of hosts: rules to these, and --allow of these"`
	AllowSecrets   nameCap         `yaml:"allow_secrets" jsonschema_description:"references of secrets that policies may use; a * at the end matches any rest"`
	AllowWorkflows []workflowTrust `yaml:"allow_workflows" jsonschema_description:"workflows whose OIDC tokens are believed"`
	IsolationMin   isolationName   `yaml:"isolation_min" jsonschema_description:"weakest isolation that may be used"`
	CI             ciTrust         `yaml:"ci" jsonschema_description:"trusted: a pushed branch may start CI without approval"`
}

type profile struct {
	Extends     *string           `yaml:"extends" jsonschema_description:"profile that this one starts from; maps merge by key, lists replace"`
	Image       *string           `yaml:"image" jsonschema_description:"container image with @sha256:…; a tag is accepted for local runs only"`
	Runtime     *runtimeName      `yaml:"runtime" jsonschema_description:"agent that the profile is for; absent: a command"`
	Isolation   *isolationName    `yaml:"isolation" jsonschema_description:"runc, or runsc for gVisor"`
	Workdir     *string           `yaml:"workdir" jsonschema_description:"directory that the command starts in"`
	Env         map[string]string `yaml:"env" jsonschema_description:"the whole environment besides what the runtime sets"`
	Writable    []string          `yaml:"writable" jsonschema_description:"writable directories besides /home/agent and /dev/shm"`
	ReadDenied  []string          `yaml:"read_denied" jsonschema_description:"paths that are never delivered into the sandbox"`
	Network     *network          `yaml:"network" jsonschema_description:"the only ways out; absent: none"`
	Secrets     map[string]secret `yaml:"secrets" jsonschema_description:"secrets by name; a reference, never a value"`
	Tools       []string          `yaml:"tools" jsonschema_description:"tools of the agent's runtime that are allowed by name"`
	HostedTools []string          `yaml:"hosted_tools" jsonschema_description:"tools that the model's provider may run on its side"`
	Limits      *limits           `yaml:"limits" jsonschema_description:"bounds of one run"`
	Outputs     *outputs          `yaml:"outputs" jsonschema_description:"what may come of the changed workspace"`
}

// ceilingProfile has the keys of a profile for which a maximum has a meaning.
type ceilingProfile struct {
	Extends     *string     `yaml:"extends" jsonschema_description:"profile that this one starts from"`
	Network     *networkCap `yaml:"network" jsonschema_description:"destinations that policies may allow; absent: none"`
	Tools       *nameCap    `yaml:"tools" jsonschema_description:"tools that policies may allow; absent: none"`
	HostedTools *nameCap    `yaml:"hosted_tools" jsonschema_description:"provider-run tools that policies may allow; absent: none"`
	Limits      *limits     `yaml:"limits" jsonschema_description:"largest bounds; one that is absent is the built-in ceiling's"`
	Outputs     *outputs    `yaml:"outputs" jsonschema_description:"farthest output; a key that is absent is the built-in ceiling's"`
}

type network struct {
	Allow []netRule `yaml:"allow" jsonschema_description:"hosts that may be reached; empty: none"`
}

type networkCap struct {
	Allow ruleCap `yaml:"allow" jsonschema_description:"destinations, or any for every public host"`
}

type netRule struct {
	Host      string    `yaml:"host" jsonschema:"required" jsonschema_description:"exact name, or *.example.com for one more label"`
	Port      *int      `yaml:"port" jsonschema:"minimum=1,maximum=65535" jsonschema_description:"required but for a gateway, where it is 80"`
	Upstream  string    `yaml:"upstream" jsonschema_description:"for a gateway: the real https://host[:port]"`
	Mode      ruleMode  `yaml:"mode" jsonschema_description:"opaque (default): a tunnel; gateway: plain HTTP inside, TLS outside; inspect: TLS opened by the proxy"`
	API       string    `yaml:"api" jsonschema_description:"for a gateway: the API that the proxy understands, such as anthropic-messages"`
	Methods   []string  `yaml:"methods" jsonschema_description:"HTTP methods; for gateway and inspect"`
	Paths     []string  `yaml:"paths" jsonschema_description:"HTTP paths; for gateway and inspect"`
	Upload    *size     `yaml:"upload" jsonschema_description:"bytes that may be sent in one run; default 1MiB, 256MiB for a gateway"`
	Inject    string    `yaml:"inject" jsonschema_description:"secret that the proxy adds outside the sandbox"`
	Private   bool      `yaml:"private" jsonschema_description:"the address may be one that is not public"`
	WebSocket bool      `yaml:"websocket" jsonschema_description:"allow the upgrade; for gateway and inspect"`
	Hold      *duration `yaml:"hold" jsonschema_description:"how long a denied connection waits for a person"`
	DenyBody  []string  `yaml:"deny_body" jsonschema_description:"texts that no request body may contain; for gateway and inspect"`
}

type secret struct {
	Ref     string      `yaml:"ref" jsonschema:"required" jsonschema_description:"where the value is: vault://…, file://…, env://…"`
	Deliver deliverKind `yaml:"deliver" jsonschema:"required" jsonschema_description:"inject: by the proxy, never in the sandbox; file: below /run/secret"`
	As      injectKind  `yaml:"as" jsonschema_description:"for inject. header: the whole value of the header that name says; bearer: Authorization: Bearer; basic: Authorization: Basic, of a secret user:password"`
	Name    string      `yaml:"name" jsonschema_description:"for as: header, the header's name"`
}

type limits struct {
	CPU     *float64  `yaml:"cpu" jsonschema_description:"cores, decimal"`
	Memory  *mib      `yaml:"memory"`
	Pids    *int64    `yaml:"pids" jsonschema_description:"processes and threads"`
	Disk    *mib      `yaml:"disk" jsonschema_description:"the workspace"`
	Home    *mib      `yaml:"home" jsonschema_description:"/home/agent"`
	Tmp     *mib      `yaml:"tmp" jsonschema_description:"/tmp"`
	Shm     *mib      `yaml:"shm" jsonschema_description:"/dev/shm"`
	Files   *int64    `yaml:"files" jsonschema_description:"files and directories of the workspace"`
	Log     *mib      `yaml:"log" jsonschema_description:"output that is kept"`
	Timeout *duration `yaml:"timeout" jsonschema_description:"wall clock of the command"`
	Wait    *duration `yaml:"wait" jsonschema_description:"how long a run may wait for a person"`
	CostUSD *float64  `yaml:"cost_usd" jsonschema_description:"what models may cost; 0: nothing"`
}

type outputs struct {
	Kind           *outputKind `yaml:"kind"`
	Push           *pushKind   `yaml:"push" jsonschema_description:"never; approved: after a person's approval; trusted: at once, where the ceiling trusts CI"`
	MaxFiles       *int        `yaml:"max_files"`
	MaxBytes       *size       `yaml:"max_bytes"`
	ProtectedPaths []string    `yaml:"protected_paths" jsonschema_description:"paths whose change is never pushed"`
}

// rule chooses a profile. All conditions that it states must hold.
type rule struct {
	Label   oneOrMore `yaml:"label" jsonschema_description:"any of these labels"`
	Event   oneOrMore `yaml:"event" jsonschema_description:"any of these events: pull_request, issue, comment, dispatch, push, schedule, api, local"`
	Role    roleName  `yaml:"role" jsonschema_description:"least role of the person; absent: write, or none for schedule alone"`
	Fork    bool      `yaml:"fork" jsonschema_description:"true: for heads from forks only; absent: never for them"`
	When    string    `yaml:"when" jsonschema_description:"CEL condition over event, actor, repo, pr, labels, paths"`
	Profile string    `yaml:"profile" jsonschema:"required" jsonschema_description:"profile that is chosen"`
}

// promotionApproval says who decides about one kind of promotion.
type promotionApproval struct {
	Approvers approvers `yaml:"approvers" jsonschema:"required"`
	Count     *int      `yaml:"count" jsonschema:"minimum=1" jsonschema_description:"distinct people; absent: 1"`
	TTL       *duration `yaml:"ttl" jsonschema:"required" jsonschema_description:"how long an approval holds"`
	Uses      *int      `yaml:"uses" jsonschema:"minimum=1" jsonschema_description:"how often it may be used; absent: 1"`
}

type approvers struct {
	Users      []string `yaml:"users" jsonschema_description:"numeric ids, or logins"`
	Teams      []string `yaml:"teams"`
	Role       roleName `yaml:"role" jsonschema_description:"least role"`
	CodeOwners bool     `yaml:"code_owners"`
}

type workflowTrust struct {
	JobWorkflowRef string `yaml:"job_workflow_ref" jsonschema:"required"`
	SHA            string `yaml:"sha" jsonschema:"required"`
}

// nameCap is a list of names, or every name.
type nameCap struct {
	Any  bool
	List []string
}

func (c *nameCap) setAny()   { c.Any = true }
func (c *nameCap) list() any { return &c.List }

// ruleCap is a list of destinations, or every public one.
type ruleCap struct {
	Any  bool
	List []netRule
}

func (c *ruleCap) setAny()   { c.Any = true }
func (c *ruleCap) list() any { return &c.List }
