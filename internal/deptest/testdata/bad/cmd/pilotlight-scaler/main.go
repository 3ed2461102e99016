// Command pilotlight-scaler links a fake, by way of a part.
package main

import _ "example.com/bad/scaler"

func main() {}
