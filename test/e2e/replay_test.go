package e2e

// replays says of each scenario whether the simulator plays it again, which takes
// that load, start-up time and policy explain what happens; else why not.
var replays = map[string]struct {
	// same: other steps fail the scenario. So it is where the steps lie far apart;
	// where one follows the other, a look of the HPA that comes a moment sooner
	// makes one step of two, in the simulator as in reality.
	same  bool
	apart string // why it is not replayed
}{
	"TestPushWakesFromZero":              {same: true},
	"TestPollOnlyTriggerWakes":           {same: true},
	"TestBurstScalesOutAndBackToZero":    {},
	"TestALongStreamKeepsThePod":         {same: true},
	"TestColdStartLongerThanTheCooldown": {same: true},
	"TestNoCascadeWhileLoading":          {},
	"TestAStartThatNeverBecomesReady":    {},
	"TestInitialCooldown":                {same: true},
	"TestMinimumOfOne":                   {},

	"TestTwoTriggersOnOneScaledObject": {apart: "the simulator has one trigger"},
	"TestScalingModifiers":             {apart: "the simulator has no scalingModifiers"},

	"TestScalerRestartedAtZero":                           {apart: "the scaler is killed"},
	"TestScalerRestartedAtN":                              {apart: "the scaler is killed"},
	"TestScalerRestartedInTheMiddleOfAStart":              {apart: "the scaler is killed"},
	"TestScalerAbsentWhenTheScaledObjectIsMade":           {apart: "the scaler is away"},
	"TestFallbackWhileTheScalerIsAway":                    {apart: "the scaler is away"},
	"TestHeldRequestsSurviveAMinuteWithoutTheScaler":      {apart: "the scaler is away"},
	"TestTwoScalersHandOver":                              {apart: "scalers are stopped and killed"},
	"TestMutualTLSWithRotation":                           {apart: "the scaler is restarted"},
	"TestKEDARestarted":                                   {apart: "KEDA is killed"},
	"TestAPIServerUnreachableForAMinute":                  {apart: "the API server is away"},
	"TestAllPodsUnscrapable":                              {apart: "engines hang"},
	"TestOnePodHung":                                      {apart: "an engine hangs"},
	"TestAnEngineThatStartsAnewInItsPod":                  {apart: "an engine dies"},
	"TestPausedIsLeftAlone":                               {apart: "somebody pauses it"},
	"TestModelSwitchedByPointerAndRolledBackWhileServing": {apart: "rollouts replace its pods"},
}
